//! Images prepared for a model, by other threads while it runs.

use std::path::{Path, PathBuf};

use vitreous_data::image::{Channels, Image, Preprocess, Scratch};
use vitreous_models::Size;
pub use vitreous_pages::explain::PartSeen;

use crate::images::{ListedImage, standard_input};

/// An image prepared for the model, or why it could not be.
pub struct Prepared {
    /// The file.
    pub path: PathBuf,
    /// Its tensor.
    pub pixels: Result<Pixels, String>,
}

/// The input of a model.
pub struct Pixels {
    /// The tensor, channels first.
    pub numbers: Vec<f32>,
    /// The size of the image, and of the part that the model sees.
    pub part: PartSeen,
}

/// What each decoding thread does with a path.
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
    let channels = Channels::from_count(channels)
        .ok_or("images have one or three channels, but this model takes another number")?;
    let decoded = match standard_input(path) {
        Some(bytes) => vitreous_data::image::decode(bytes, channels),
        None => vitreous_data::image::open(path, channels),
    };
    decoded.map_err(|error| error.to_string())
}

/// Prepares a decoded image.
pub fn prepare(image: &Image, preprocess: &Preprocess, floats: usize, scratch: &mut Scratch) -> Result<Pixels, String> {
    let mut numbers = vec![0.0; floats];
    preprocess.apply(image, scratch, &mut numbers).map_err(|error| error.to_string())?;
    let [height, width] = preprocess.rows_and_columns_seen(image);
    let whole = Size { height: image.height(), width: image.width() };
    Ok(Pixels { numbers, part: PartSeen { image: whole, seen: Size { height, width } } })
}
