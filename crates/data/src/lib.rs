//! Vitreous' data: images decoded and prepared as a model's own configuration says.
