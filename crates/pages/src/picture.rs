//! Pictures inside a page.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use vitreous_data::image::{Image, ImageError};

use crate::escape;

/// Bytes as text for scripts (`atob`) and addresses.
pub fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The address of a picture that holds the picture itself.
pub fn png_uri(image: &Image) -> Result<String, ImageError> {
    Ok(format!("data:image/png;base64,{}", base64(&image.to_png()?)))
}

/// An `img` element that says what it shows to who cannot see it. Its size is fixed, so that nothing jumps.
pub fn image(image: &Image, alternative: &str, class: &str) -> Result<String, ImageError> {
    let (uri, alternative) = (png_uri(image)?, escape(alternative));
    let (width, height) = (image.width(), image.height());
    Ok(format!("<img class=\"{class}\" width=\"{width}\" height=\"{height}\" alt=\"{alternative}\" src=\"{uri}\">"))
}
