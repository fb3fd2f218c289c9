//! From a file's bytes to pixels, as Pillow's `Image.open(...).convert("RGB")` (or `"L"`) gives them.
//!
//! What the bytes are is told from the bytes, never from a name. Where there is a choice:
//!
//! - Transparency is dropped, not composited: the colours stored under it are kept.
//! - Of an animation the first frame is taken.
//! - 16 bits become 8 by keeping the upper 8. (Pillow does so for colour; grey of 16 bits it clips at 255, which makes
//!   nearly every such image white. Nobody trains on that.)
//! - Grey from colour is ITU-R 601, `(19595 R + 38470 G + 7471 B + 2^15) / 2^16`.
//! - JPEG decoders are free in how they round. Ours rounds as libjpeg-turbo does, which Pillow and `torchvision` use: pixels are
//!   equal. Only progressive files that end properly but lack the last bits of slow waves differ, as libjpeg smooths them.
//! - The orientation that a camera noted in EXIF is applied, as `transformers`' `load_image` does.

use std::io::{Cursor, Read};
use std::path::Path;

use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};

use super::format::FileFormat;
use super::{gif, jpeg};
use crate::image::error::ImageError;

/// What a pixel is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Channels {
    /// One byte: how bright.
    Grey,
    /// Three bytes: red, green, blue.
    Rgb,
}

impl Channels {
    /// How many bytes a pixel has: 1 or 3.
    pub fn count(self) -> usize {
        match self {
            Channels::Grey => 1,
            Channels::Rgb => 3,
        }
    }

    /// The channels of a model that takes `count` of them, if images have that many.
    pub fn from_count(count: usize) -> Option<Channels> {
        match count {
            1 => Some(Channels::Grey),
            3 => Some(Channels::Rgb),
            _ => None,
        }
    }
}

/// Pixels: rows from the top, a pixel's channels side by side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    width: usize,
    height: usize,
    channels: Channels,
    pixels: Vec<u8>,
}

/// The most pixels that an image may have: where Pillow refuses what it calls a decompression bomb. A file of a few
/// hundred bytes can claim any size, and hold it, too.
pub(crate) const MOST_PIXELS: u64 = 178_956_970;
/// The longest that a side may be.
pub(crate) const LONGEST_SIDE: u64 = 1 << 20;
/// The most bytes that a file may have. An uncompressed image of [`MOST_PIXELS`] has fewer.
const MOST_FILE_BYTES: u64 = 1 << 31;

impl Image {
    /// An image of these pixels; there must be `width * height * channels` bytes, and at least one pixel.
    pub fn new(width: usize, height: usize, channels: Channels, pixels: Vec<u8>) -> Result<Image, ImageError> {
        let bytes = width.checked_mul(height).and_then(|count| count.checked_mul(channels.count()));
        if bytes != Some(pixels.len()) || pixels.is_empty() {
            let channels = channels.count();
            return Err(ImageError::Shape { width, height, channels, bytes: pixels.len() });
        }
        check_size(width as u64, height as u64)?;
        Ok(Image { width, height, channels, pixels })
    }

    /// Pixels in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The number of rows.
    pub fn height(&self) -> usize {
        self.height
    }

    /// What a pixel is made of.
    pub fn channels(&self) -> Channels {
        self.channels
    }

    /// All bytes: rows from the top, a pixel's channels side by side.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// The bytes without a copy.
    pub fn into_pixels(self) -> Vec<u8> {
        self.pixels
    }

    /// Writes a PNG.
    pub fn save_png(&self, path: &Path) -> Result<(), ImageError> {
        Ok(std::fs::write(path, self.to_png()?)?)
    }

    /// The bytes of a PNG.
    pub fn to_png(&self) -> Result<Vec<u8>, ImageError> {
        let colour = match self.channels {
            Channels::Grey => image::ColorType::L8,
            Channels::Rgb => image::ColorType::Rgb8,
        };
        let (width, height) = (self.width as u32, self.height as u32);
        let mut bytes = Cursor::new(Vec::new());
        image::write_buffer_with_format(&mut bytes, &self.pixels, width, height, colour, ImageFormat::Png)
            .map_err(std::io::Error::other)?;
        Ok(bytes.into_inner())
    }

    /// The same image with other channels: grey is repeated, colour becomes ITU-R 601 grey.
    #[must_use]
    pub fn with_channels(self, channels: Channels) -> Image {
        let pixels = match (self.channels, channels) {
            (Channels::Grey, Channels::Rgb) => repeat(self.pixels.into_iter()),
            (Channels::Rgb, Channels::Grey) => grey(self.pixels.chunks_exact(3).map(|rgb| [rgb[0], rgb[1], rgb[2]])),
            _ => return self,
        };
        Image { channels, pixels, ..self }
    }
}

/// Reads and decodes a file. See [`decode`].
pub fn open(path: &Path, channels: Channels) -> Result<Image, ImageError> {
    let file = std::fs::File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(std::io::Error::from(std::io::ErrorKind::IsADirectory).into());
    }
    let mut bytes = Vec::new();
    file.take(MOST_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_FILE_BYTES {
        return Err(std::io::Error::new(std::io::ErrorKind::FileTooLarge, "more than 2 GiB for one image").into());
    }
    let of_file = |format: FileFormat| ImageError::Format { format, file: Some(path.to_path_buf()) };
    // Raw files of cameras are TIFF files, too; not all of them show it in their content.
    if let (Some(FileFormat::Tiff), Some(FileFormat::CameraRaw)) =
        (FileFormat::of_bytes(&bytes), FileFormat::not_decoded(path))
    {
        return Err(of_file(FileFormat::CameraRaw));
    }
    decode(&bytes, channels).map_err(|error| match error {
        ImageError::Format { format, .. } => of_file(format),
        error => error,
    })
}

/// Decodes a JPEG, PNG, WebP, GIF, BMP or TIFF, upright.
pub fn decode(bytes: &[u8], channels: Channels) -> Result<Image, ImageError> {
    if bytes.is_empty() {
        return Err(ImageError::Empty);
    }
    let format = FileFormat::of_bytes(bytes).ok_or(ImageError::NotAnImage)?;
    let image = match format {
        FileFormat::Jpeg => jpeg::decode(bytes)?,
        FileFormat::Gif => gif::decode(bytes)?,
        FileFormat::Png => decode_other(bytes, ImageFormat::Png, format.name())?,
        FileFormat::WebP => decode_other(bytes, ImageFormat::WebP, format.name())?,
        FileFormat::Bmp => decode_other(bytes, ImageFormat::Bmp, format.name())?,
        FileFormat::Tiff => decode_other(bytes, ImageFormat::Tiff, format.name())?,
        format => return Err(ImageError::Format { format, file: None }),
    };
    let (width, height) = (image.width() as usize, image.height() as usize);
    Image::new(width, height, channels, to_channels(image, channels))
}

/// Refuses a size before memory is taken for it.
pub(crate) fn check_size(width: u64, height: u64) -> Result<(), ImageError> {
    let few = width.checked_mul(height).is_some_and(|pixels| pixels <= MOST_PIXELS);
    if few && width <= LONGEST_SIDE && height <= LONGEST_SIDE {
        return Ok(());
    }
    let limit = format!("{MOST_PIXELS} pixels and {LONGEST_SIDE} a side are read");
    Err(ImageError::TooLarge { what: "the image", width, height, limit })
}

/// Decodes what the `image` crate does as Pillow does.
fn decode_other(bytes: &[u8], format: ImageFormat, name: &'static str) -> Result<DynamicImage, ImageError> {
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(limits());
    let mut decoder = reader.into_decoder().map_err(|error| told(name, error))?;
    let (width, height) = decoder.dimensions();
    if width == 0 || height == 0 {
        return Err(ImageError::Damaged { format: name, reason: format!("its size is {width} x {height}") });
    }
    check_size(width.into(), height.into())?;
    let orientation = decoder.orientation().map_err(|error| told(name, error))?;
    let mut image = DynamicImage::from_decoder(decoder).map_err(|error| told(name, error))?;
    image.apply_orientation(orientation);
    Ok(image)
}

fn limits() -> Limits {
    let mut limits = Limits::default();
    // Sides are checked by us, to say how long they are.
    limits.max_image_width = None;
    limits.max_image_height = None;
    // Eight bytes a pixel (16 bits, four channels), as much again for the decoder's own use, and room for a header that claims
    // more, so that it is us who say so.
    limits.max_alloc = Some(4 << 30);
    limits
}

fn told(format: &'static str, error: image::ImageError) -> ImageError {
    match error {
        // Other programs write TIFF files with all the variants there are.
        image::ImageError::Unsupported(error) if format == FileFormat::Tiff.name() => {
            let conversion = FileFormat::Tiff.conversion(None);
            ImageError::Unsupported { format, reason: format!("{error}; convert it first, e.g. {conversion}") }
        }
        image::ImageError::Unsupported(error) => ImageError::Unsupported { format, reason: error.to_string() },
        image::ImageError::Limits(_) => {
            ImageError::Unsupported { format, reason: "it asks for more memory than one image is given".to_string() }
        }
        error => ImageError::Damaged { format, reason: error.to_string() },
    }
}

/// The pixels' bytes, without transparency, and with as many channels as asked for.
fn to_channels(image: DynamicImage, channels: Channels) -> Vec<u8> {
    let upper = |value: u16| (value >> 8) as u8;
    match (image, channels) {
        (DynamicImage::ImageRgb8(image), Channels::Rgb) => image.into_raw(),
        (DynamicImage::ImageRgb8(image), Channels::Grey) => grey(image.pixels().map(|pixel| pixel.0)),
        (DynamicImage::ImageRgba8(image), Channels::Rgb) => {
            image.pixels().flat_map(|&image::Rgba([red, green, blue, _])| [red, green, blue]).collect()
        }
        (DynamicImage::ImageRgba8(image), Channels::Grey) => {
            grey(image.pixels().map(|&image::Rgba([red, green, blue, _])| [red, green, blue]))
        }
        (DynamicImage::ImageLuma8(image), Channels::Grey) => image.into_raw(),
        (DynamicImage::ImageLuma8(image), Channels::Rgb) => repeat(image.into_raw().into_iter()),
        (DynamicImage::ImageLumaA8(image), Channels::Grey) => image.pixels().map(|pixel| pixel.0[0]).collect(),
        (DynamicImage::ImageLumaA8(image), Channels::Rgb) => repeat(image.pixels().map(|pixel| pixel.0[0])),
        (DynamicImage::ImageLuma16(image), Channels::Grey) => image.pixels().map(|pixel| upper(pixel.0[0])).collect(),
        (DynamicImage::ImageLuma16(image), Channels::Rgb) => repeat(image.pixels().map(|pixel| upper(pixel.0[0]))),
        (DynamicImage::ImageLumaA16(image), Channels::Grey) => image.pixels().map(|pixel| upper(pixel.0[0])).collect(),
        (DynamicImage::ImageLumaA16(image), Channels::Rgb) => repeat(image.pixels().map(|pixel| upper(pixel.0[0]))),
        (DynamicImage::ImageRgb16(image), Channels::Rgb) => image.into_raw().into_iter().map(upper).collect(),
        (DynamicImage::ImageRgb16(image), Channels::Grey) => grey(image.pixels().map(|pixel| pixel.0.map(upper))),
        (DynamicImage::ImageRgba16(image), Channels::Rgb) => {
            image.pixels().flat_map(|&image::Rgba([red, green, blue, _])| [red, green, blue].map(upper)).collect()
        }
        (DynamicImage::ImageRgba16(image), Channels::Grey) => {
            grey(image.pixels().map(|&image::Rgba([red, green, blue, _])| [red, green, blue].map(upper)))
        }
        (other, Channels::Rgb) => other.into_rgb8().into_raw(),
        (other, Channels::Grey) => grey(other.into_rgb8().pixels().map(|pixel| pixel.0)),
    }
}

fn repeat(values: impl Iterator<Item = u8>) -> Vec<u8> {
    values.flat_map(|value| [value; 3]).collect()
}

/// ITU-R 601 in Pillow's fixed point.
fn grey(pixels: impl Iterator<Item = [u8; 3]>) -> Vec<u8> {
    pixels
        .map(|pixel| {
            let [red, green, blue] = pixel.map(u32::from);
            ((19595 * red + 38470 * green + 7471 * blue + 0x8000) >> 16) as u8
        })
        .collect()
}
