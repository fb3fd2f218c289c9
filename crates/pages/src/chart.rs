//! Charts as SVG, with real text and a description for who cannot see them.
