//! Pictures inside a page, as data addresses.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use image::{ColorType, ImageFormat};
use vitreous_data::image::{Image, ImageError};

use crate::escape;

/// Bytes as text, for scripts (`atob`) and data addresses.
pub fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// A picture as a data address.
pub fn png_uri(image: &Image) -> Result<String, ImageError> {
    Ok(format!("data:image/png;base64,{}", base64(&image.to_png()?)))
}

/// The same for a picture with an alpha channel: rows of red, green, blue and alpha.
pub fn rgba_uri(width: usize, height: usize, pixels: &[u8]) -> Result<String, ImageError> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    let (width, height) = (width as u32, height as u32);
    image::write_buffer_with_format(&mut bytes, pixels, width, height, ColorType::Rgba8, ImageFormat::Png)
        .map_err(std::io::Error::other)?;
    Ok(format!("data:image/png;base64,{}", base64(&bytes.into_inner())))
}

/// An `img` element with its alternative text. Its size is fixed, so that nothing jumps while it loads.
pub fn image(image: &Image, alternative: &str, class: &str) -> Result<String, ImageError> {
    let (uri, alternative) = (png_uri(image)?, escape(alternative));
    let (width, height) = (image.width(), image.height());
    Ok(format!("<img class=\"{class}\" width=\"{width}\" height=\"{height}\" alt=\"{alternative}\" src=\"{uri}\">"))
}
