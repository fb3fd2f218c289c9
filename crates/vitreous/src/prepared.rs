//! Images made ready for a model, by threads of their own while it runs.

use std::path::{Path, PathBuf};

use vitreous_data::image::{Channels, Image, Preprocess, Scratch};
use vitreous_models::Size;
pub use vitreous_pages::explain::PartSeen;

use crate::images::{ListedImage, standard_input};

/// An image made ready for the model, or why it could not be.
pub struct Prepared {
    /// The file.
    pub path: PathBuf,
    /// Channels first.
    pub pixels: Result<Pixels, String>,
}

/// What a model is given of an image.
pub struct Pixels {
    /// Channels first.
    pub numbers: Vec<f32>,
    /// How large the image is, and how much of that the model sees.
    pub part: PartSeen,
}

/// What each decoding thread does with an image.
pub fn worker(
    preprocess: Preprocess,
    channels: usize,
    floats: usize,
) -> impl FnMut(ListedImage) -> Prepared + Send + 'static {
    let mut scratch = Scratch::default();
    move |found| match found {
        Ok(path) => {
            let pixels = decode(&path, channels).and_then(|image| prepare(&image, &preprocess, floats, &mut scratch));
            Prepared { path, pixels }
        }
        Err(missing) => Prepared { path: missing.path, pixels: Err(missing.error) },
    }
}

fn decode(path: &Path, channels: usize) -> Result<Image, String> {
    let channels =
        Channels::from_count(channels).ok_or("images have one or three channels, this model wants others")?;
    let decoded = match standard_input(path) {
        Some(bytes) => vitreous_data::image::decode(bytes, channels),
        None => vitreous_data::image::open(path, channels),
    };
    decoded.map_err(|error| error.to_string())
}

/// Makes a decoded image ready.
pub fn prepare(image: &Image, preprocess: &Preprocess, floats: usize, scratch: &mut Scratch) -> Result<Pixels, String> {
    let mut numbers = vec![0.0; floats];
    preprocess.apply(image, scratch, &mut numbers).map_err(|error| error.to_string())?;
    let [height, width] = preprocess.rows_and_columns_seen(image);
    let whole = Size { height: image.height(), width: image.width() };
    Ok(Pixels { numbers, part: PartSeen { image: whole, seen: Size { height, width } } })
}
