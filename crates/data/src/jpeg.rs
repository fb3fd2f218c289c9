//! JPEG: whole files only, in any of the colour spaces that Pillow reads.

use image::metadata::Orientation;
use image::{DynamicImage, GrayImage, RgbImage};
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;
use zune_jpeg::errors::DecodeErrors;

use crate::decode::check_size;
use crate::error::ImageError;

const FORMAT: &str = "JPEG";

pub(crate) fn decode(bytes: &[u8]) -> Result<DynamicImage, ImageError> {
    check_complete(bytes)?;
    // Not strict: Pillow, too, reads files with small faults such as stray bytes between segments. That the end is
    // missing, the fault that would give grey rows, has been found out above.
    let options = DecoderOptions::default()
        .set_strict_mode(false)
        .set_max_width(usize::from(u16::MAX))
        .set_max_height(usize::from(u16::MAX));
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(told)?;
    let (Some((width, height)), Some(stored)) = (decoder.dimensions(), decoder.input_colorspace()) else {
        return Err(damaged("there is no frame"));
    };
    if width == 0 || height == 0 {
        return Err(damaged(format!("its size is {width} x {height}")));
    }
    check_size(width as u64, height as u64)?;
    let wanted = match stored {
        ColorSpace::Luma | ColorSpace::CMYK | ColorSpace::YCCK => stored,
        _ => ColorSpace::RGB,
    };
    decoder.set_options(options.jpeg_set_out_colorspace(wanted));
    let orientation = decoder.exif().and_then(|exif| Orientation::from_exif_chunk(exif));
    let pixels = decoder.decode().map_err(told)?;
    let pixels = match wanted {
        ColorSpace::CMYK => from_four(&pixels, |cmy| cmy),
        ColorSpace::YCCK => from_four(&pixels, from_ycc),
        _ => pixels,
    };
    let (width, height) = (width as u32, height as u32);
    let image = match wanted {
        ColorSpace::Luma => GrayImage::from_raw(width, height, pixels).map(DynamicImage::ImageLuma8),
        _ => RgbImage::from_raw(width, height, pixels).map(DynamicImage::ImageRgb8),
    };
    let mut image = image.ok_or_else(|| damaged("fewer pixels than its size says"))?;
    image.apply_orientation(orientation.unwrap_or(Orientation::NoTransforms));
    Ok(image)
}

fn damaged(reason: impl Into<String>) -> ImageError {
    ImageError::Damaged { format: FORMAT, reason: reason.into() }
}

fn told(error: DecodeErrors) -> ImageError {
    match error {
        DecodeErrors::Unsupported(what) => ImageError::Unsupported { format: FORMAT, reason: format!("{what:?}") },
        other => damaged(format!("{other:?}")),
    }
}

/// Four channels to RGB. Files hold 255 minus the ink, whoever wrote them: that is Adobe's habit, and Pillow assumes it of
/// all files. With `k = 255 - black`: `red = k - cyan * k / 255`.
fn from_four(pixels: &[u8], to_inverted_inks: fn([u8; 3]) -> [u8; 3]) -> Vec<u8> {
    let mut rgb = Vec::with_capacity(pixels.len() / 4 * 3);
    for pixel in pixels.chunks_exact(4) {
        let light = u32::from(pixel[3]);
        let inks = to_inverted_inks([pixel[0], pixel[1], pixel[2]]).map(|value| 255 - u32::from(value));
        rgb.extend(inks.map(|ink| (light - divide_by_255(ink * light)) as u8));
    }
    rgb
}

/// Rounded, and exact for products of two bytes.
fn divide_by_255(product: u32) -> u32 {
    let product = product + 128;
    ((product >> 8) + product) >> 8
}

/// YCC to the inverted inks, in libjpeg's 16-bit fixed point. libjpeg gives the inks of YCCK as 255 minus what RGB would
/// be; the file's inks are inverted, so two inversions cancel.
fn from_ycc([luma, blue, red]: [u8; 3]) -> [u8; 3] {
    let (luma, blue, red) = (i32::from(luma), i32::from(blue) - 128, i32::from(red) - 128);
    const HALF: i32 = 1 << 15;
    let rgb = [
        luma + ((91881 * red + HALF) >> 16),
        luma + ((-22554 * blue - 46802 * red + HALF) >> 16),
        luma + ((116130 * blue + HALF) >> 16),
    ];
    rgb.map(|value| 255 - value.clamp(0, 255) as u8)
}

/// Walks over the file's segments to the marker that ends the image. A file that was cut off has none.
fn check_complete(bytes: &[u8]) -> Result<(), ImageError> {
    const RESTARTS: std::ops::RangeInclusive<u8> = 0xD0..=0xD7;
    let truncated = || damaged("the file ends before the image does");
    let mut at = 2;
    loop {
        // To the next marker: 0xFF and a code. 0xFF 0x00 is a byte of data, 0xFF 0xFF is filling.
        let step = bytes.get(at..).unwrap_or(&[]).iter().position(|&byte| byte == 0xFF).ok_or_else(truncated)?;
        at += step + 1;
        match *bytes.get(at).ok_or_else(truncated)? {
            0xFF => {}
            0xD9 => return Ok(()),
            0x00 | 0x01 | 0xD8 => at += 1,
            code if RESTARTS.contains(&code) => at += 1,
            _ => {
                let length = bytes.get(at + 1..at + 3).ok_or_else(truncated)?;
                at += 1 + usize::from(u16::from_be_bytes([length[0], length[1]]));
            }
        }
    }
}
