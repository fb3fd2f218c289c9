//! Writes a contact sheet of the built-in data set: `cargo run --example contact_sheet -- sheet.png`.

use vitreous_data::dataset;
use vitreous_data::image::augment::{Augment, AugmentSettings, CropKind, Mixer, contact_sheet};
use vitreous_data::image::{Channels, Preprocess};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: contact_sheet FILE.png")?;
    let data = dataset::builtin();
    let preprocess = Preprocess::default_for([28, 28], Channels::Grey);
    let preprocess = Preprocess { resize: vitreous_data::image::Resize::Exact([28, 28]), crop: None, ..preprocess };
    let settings = AugmentSettings {
        crop: CropKind::Padded,
        flip: 0.5,
        policy: "rand-m9-mstd0.5-inc1".to_string(),
        erase: 0.25,
        mixup: 0.8,
        cutmix: 1.0,
        mix_probability: 0.5,
        ..AugmentSettings::default()
    };
    let augment = Augment::new(&settings, &preprocess)?;
    let mixer = Mixer::new(&settings)?;
    let sheet = contact_sheet(&*data.train, &data.classes, &augment, mixer.as_ref(), 8, [4, 6])?;
    let (width, height) = (sheet.width() as u32, sheet.height() as u32);
    image::save_buffer(path, sheet.pixels(), width, height, image::ColorType::Rgb8)?;
    Ok(())
}
