//! Decodes image files to the pixels of Pillow's `Image.open(...).convert("RGB")` (or `"L"`).
//!
//! The format is detected from the content, never from the name. Where there is a choice:
//!
//! - Transparency is dropped, not composited: the colours stored under it are kept.
//! - Of an animation the first frame is decoded, of a TIFF the first page.
//! - 16 bits per channel become 8 by keeping the upper 8. (Pillow does so for colour; it clips 16-bit greyscale at 255, which makes
//!   nearly every such image white.)
//! - Grey from colour is ITU-R 601, `(19595 R + 38470 G + 7471 B + 2^15) / 2^16`.
//! - JPEG leaves rounding to the decoder. Ours rounds as libjpeg-turbo does, which Pillow and `torchvision` use, so pixels are equal.
//!   Only progressive files that lack the last bits of low frequencies differ, because libjpeg smooths these.
//! - The EXIF orientation is applied, as `transformers`' `load_image` does.

use std::io::{Cursor, Read};
use std::path::Path;

use vitreous_files::open::open_regular;
use vitreous_files::partial;

use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};

use super::format::FileFormat;
use super::{gif, jpeg};
use crate::image::error::ImageError;

/// The channels of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Channels {
    /// Greyscale: one byte per pixel.
    Grey,
    /// Red, green, blue: three bytes per pixel.
    Rgb,
}

impl Channels {
    /// Number of channels: 1 or 3.
    pub fn count(self) -> usize {
        match self {
            Channels::Grey => 1,
            Channels::Rgb => 3,
        }
    }

    /// The channels of a model that takes this many, if there are images of that many.
    pub fn from_count(count: usize) -> Option<Channels> {
        match count {
            1 => Some(Channels::Grey),
            3 => Some(Channels::Rgb),
            _ => None,
        }
    }
}

/// A decoded image: rows from the top, channels interleaved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    width: usize,
    height: usize,
    channels: Channels,
    pixels: Vec<u8>,
}

/// The maximum number of pixels: beyond it Pillow refuses an image as a decompression bomb. A file of a few hundred bytes can claim any
/// size, and even have it.
pub(crate) const MOST_PIXELS: u64 = 178_956_970;
/// The maximum length of a side.
pub(crate) const LONGEST_SIDE: u64 = 1 << 20;
/// The maximum size of a file. Half a gigabyte is an uncompressed image of [`MOST_PIXELS`].
const MOST_FILE_BYTES: u64 = 1 << 30;
/// What the format of a file can be told from.
const FIRST_BYTES: u64 = 1 << 16;

impl Image {
    /// An image of these pixels; there must be `width * height * channels` bytes, and at least one pixel.
    pub fn new(width: usize, height: usize, channels: Channels, pixels: Vec<u8>) -> Result<Image, ImageError> {
        let bytes = width.checked_mul(height).and_then(|count| count.checked_mul(channels.count()));
        if bytes != Some(pixels.len()) || pixels.is_empty() {
            let channels = channels.count();
            return Err(ImageError::Shape { width, height, channels, bytes: pixels.len() });
        }
        check_size(width as u64, height as u64, MOST_PIXELS)?;
        Ok(Image { width, height, channels, pixels })
    }

    /// Width in pixels.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Height in pixels.
    pub fn height(&self) -> usize {
        self.height
    }

    /// The channels.
    pub fn channels(&self) -> Channels {
        self.channels
    }

    /// The bytes: rows from the top, channels interleaved.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// The bytes, without a copy.
    pub fn into_pixels(self) -> Vec<u8> {
        self.pixels
    }

    /// Writes a PNG, whole or not at all.
    pub fn save_png(&self, path: &Path) -> Result<(), ImageError> {
        partial::write(path, &self.to_png()?).map_err(ImageError::Unwritten)
    }

    /// Encodes a PNG.
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

    /// Converts to other channels: grey is repeated, colour becomes ITU-R 601 grey.
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

fn too_large() -> ImageError {
    let text = format!("it has more than {} MiB, the maximum for one image", MOST_FILE_BYTES >> 20);
    std::io::Error::new(std::io::ErrorKind::FileTooLarge, text).into()
}

/// Reads and decodes a file. See [`decode`].
pub fn open(path: &Path, channels: Channels) -> Result<Image, ImageError> {
    // What does not begin like an image is not read to its end, which may be far.
    let mut file = open_regular(path)?;
    let mut bytes = Vec::new();
    file.by_ref().take(FIRST_BYTES).read_to_end(&mut bytes)?;
    if FileFormat::of_bytes(&bytes).is_some() {
        if file.metadata()?.len() > MOST_FILE_BYTES {
            return Err(too_large());
        }
        file.take(MOST_FILE_BYTES).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MOST_FILE_BYTES {
            return Err(too_large());
        }
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
    decode_within(bytes, channels, MOST_PIXELS)
}

/// As [`decode`], but refuses an image of more than so many pixels before memory is taken for it.
pub fn decode_within(bytes: &[u8], channels: Channels, most_pixels: u64) -> Result<Image, ImageError> {
    let most_pixels = most_pixels.min(MOST_PIXELS);
    if bytes.is_empty() {
        return Err(ImageError::Empty);
    }
    let format = FileFormat::of_bytes(bytes).ok_or(ImageError::NotAnImage)?;
    let image = match format {
        FileFormat::Jpeg => jpeg::decode(bytes, most_pixels)?,
        FileFormat::Gif => gif::decode(bytes, most_pixels)?,
        FileFormat::Png => {
            check_palette(bytes)?;
            decode_other(bytes, ImageFormat::Png, format.name(), most_pixels)?
        }
        FileFormat::WebP => decode_other(bytes, ImageFormat::WebP, format.name(), most_pixels)?,
        FileFormat::Bmp => decode_other(bytes, ImageFormat::Bmp, format.name(), most_pixels)?,
        FileFormat::Tiff => decode_other(bytes, ImageFormat::Tiff, format.name(), most_pixels)?,
        format => return Err(ImageError::Format { format, file: None }),
    };
    let (width, height) = (image.width() as usize, image.height() as usize);
    Image::new(width, height, channels, to_channels(image, channels))
}

/// Refuses a size before memory is allocated for it.
pub(crate) fn check_size(width: u64, height: u64, most_pixels: u64) -> Result<(), ImageError> {
    let few = width.checked_mul(height).is_some_and(|pixels| pixels <= most_pixels);
    if few && width <= LONGEST_SIDE && height <= LONGEST_SIDE {
        return Ok(());
    }
    let limit = format!("{most_pixels} pixels and {LONGEST_SIDE} per side are supported");
    Err(ImageError::TooLarge { what: "the image", width, height, limit })
}

/// Refuses a PNG whose palette is cut off within a colour: the decoder expects whole ones.
fn check_palette(bytes: &[u8]) -> Result<(), ImageError> {
    let mut rest = bytes.get(8..).unwrap_or_default();
    while let Some((&[a, b, c, d], after)) = rest.split_first_chunk::<4>() {
        let length = u32::from_be_bytes([a, b, c, d]);
        match after.first_chunk::<4>() {
            Some(b"PLTE") if !length.is_multiple_of(3) => {
                let reason = format!("its palette has {length} bytes, but a colour has 3");
                return Err(ImageError::Damaged { format: FileFormat::Png.name(), reason });
            }
            // The palette is before the pixels.
            Some(b"IDAT") | None => return Ok(()),
            // Its kind, its data, its checksum.
            Some(_) => rest = after.get(length as usize + 8..).unwrap_or_default(),
        }
    }
    Ok(())
}

/// Decodes formats for which the `image` crate gives the same pixels as Pillow.
fn decode_other(
    bytes: &[u8],
    format: ImageFormat,
    name: &'static str,
    most_pixels: u64,
) -> Result<DynamicImage, ImageError> {
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(limits());
    let mut decoder = reader.into_decoder().map_err(|error| told(name, error))?;
    let (width, height) = decoder.dimensions();
    if width == 0 || height == 0 {
        return Err(ImageError::Damaged { format: name, reason: format!("its size is {width} x {height}") });
    }
    check_size(width.into(), height.into(), most_pixels)?;
    let orientation = decoder.orientation().map_err(|error| told(name, error))?;
    let mut image = DynamicImage::from_decoder(decoder).map_err(|error| told(name, error))?;
    image.apply_orientation(orientation);
    Ok(image)
}

fn limits() -> Limits {
    let mut limits = Limits::default();
    // `check_size` checks the sides, with a better message.
    limits.max_image_width = None;
    limits.max_image_height = None;
    // Eight bytes per pixel (16 bits, four channels), as much again for the decoder's own use, and some more, so that larger images come
    // as far as `check_size`.
    limits.max_alloc = Some(4 << 30);
    limits
}

fn told(format: &'static str, error: image::ImageError) -> ImageError {
    match error {
        // TIFF has more variants than any decoder supports.
        image::ImageError::Unsupported(error) if format == FileFormat::Tiff.name() => {
            let conversion = FileFormat::Tiff.conversion(None);
            ImageError::Unsupported { format, reason: format!("{error}; convert it first, e.g. {conversion}") }
        }
        image::ImageError::Unsupported(error) => ImageError::Unsupported { format, reason: error.to_string() },
        image::ImageError::Limits(_) => {
            ImageError::Unsupported { format, reason: "it needs more memory than is allowed for one image".to_string() }
        }
        error => ImageError::Damaged { format, reason: error.to_string() },
    }
}

/// The pixels without transparency, in the requested channels.
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
