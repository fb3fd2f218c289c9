//! A chart as a file of its own.

use super::drawing::Ink;

/// Light and dark, as the page's style has them.
fn values(ink: Ink) -> [&'static str; 2] {
    match ink {
        Ink::Ink => ["#1c2733", "#e6eaef"],
        Ink::Soft => ["#5a6675", "#a2adba"],
        Ink::Line => ["#d9dde3", "#323c47"],
        Ink::Card => ["#ffffff", "#1a2027"],
        Ink::Paper => ["#fbfaf7", "#12161b"],
        Ink::Accent => ["#1f5f99", "#7db7e8"],
        Ink::AccentSoft => ["#e4eef7", "#20303f"],
    }
}

/// The chart as the text of an `.svg` file: with a ground, and with colours that every program knows. Programs that know the
/// reader's wish for dark follow it.
pub fn standalone(svg: &str) -> String {
    let mut file = svg.to_string();
    let mut dark = String::new();
    for ink in Ink::ALL {
        let [light, night] = values(ink);
        for property in ["fill", "stroke"] {
            let attribute = format!("{property}=\"{light}\"");
            file = file.replace(&format!("{property}=\"{}\"", ink.variable()), &attribute);
            dark.push_str(&format!("[{attribute}]{{{property}:{night}}}"));
        }
    }
    let Some((opening, body)) = file.split_once(">\n") else { return file };
    let label = opening.split("aria-label=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_default();
    let card = values(Ink::Card)[0];
    format!(
        "{opening} xmlns=\"http://www.w3.org/2000/svg\">\n<title>{label}</title>\n\
         <style>@media (prefers-color-scheme: dark) {{{dark}}}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"{card}\"/>\n{body}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::Bars;

    #[test]
    fn the_colours_are_those_of_pages() {
        let style = include_str!("../style.css");
        let (light, dark) = style.split_once("@media (prefers-color-scheme: dark)").expect("both");
        for ink in Ink::ALL {
            let name = ink.variable().trim_start_matches("var(").trim_end_matches(')');
            for (part, value) in [light, dark].into_iter().zip(values(ink)) {
                assert!(part.contains(&format!("{name}: {value};")), "{name} {value}");
            }
        }
    }

    #[test]
    fn a_file_needs_no_page() {
        let file = standalone(&Bars::new("scores & <more>").bar("cat", 1.0, "100%").svg());
        assert!(!file.contains("var("), "{file}");
        assert!(file.contains("<title>scores &amp; &lt;more&gt;</title>"));
        roxmltree::Document::parse(&file).expect("well-formed");
    }
}
