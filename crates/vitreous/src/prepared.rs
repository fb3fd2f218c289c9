//! Images made ready for a model, by threads of their own while it runs.

use std::path::{Path, PathBuf};

use vitreous_data::{Channels, Preprocess, Scratch};

use crate::images::Found;

/// An image made ready for the model, or why it could not be.
pub struct Prepared {
    /// The file.
    pub path: PathBuf,
    /// Channels first.
    pub pixels: Result<Vec<f32>, String>,
}

/// What each decoding thread does with an image.
pub fn worker(
    preprocess: Preprocess,
    channels: usize,
    floats: usize,
) -> impl FnMut(Found) -> Prepared + Send + 'static {
    let mut scratch = Scratch::default();
    move |found| match found {
        Ok(path) => {
            let pixels = prepare(&path, &preprocess, channels, floats, &mut scratch);
            Prepared { path, pixels }
        }
        Err(missing) => Prepared { path: missing.path, pixels: Err(missing.error) },
    }
}

fn prepare(
    path: &Path,
    preprocess: &Preprocess,
    channels: usize,
    floats: usize,
    scratch: &mut Scratch,
) -> Result<Vec<f32>, String> {
    let channels =
        Channels::from_count(channels).ok_or("images have one or three channels, this model wants others")?;
    let image = vitreous_data::open(path, channels).map_err(|error| error.to_string())?;
    let mut pixels = vec![0.0; floats];
    preprocess.apply(&image, scratch, &mut pixels).map_err(|error| error.to_string())?;
    Ok(pixels)
}
