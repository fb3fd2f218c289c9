//! GIF: the first frame on its canvas.

use std::num::NonZeroU64;

use gif::{ColorOutput, DecodeOptions, DecodingError, Frame, MemoryLimit};
use image::{DynamicImage, RgbImage};

use crate::image::decode::check_size;
use crate::image::error::ImageError;

const FORMAT: &str = "GIF";

pub(crate) fn decode(bytes: &[u8], most_pixels: u64) -> Result<DynamicImage, ImageError> {
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::Indexed);
    options.set_memory_limit(NonZeroU64::new(most_pixels).map_or(MemoryLimit::Unlimited, MemoryLimit::Bytes));
    let mut decoder = options.read_info(bytes).map_err(told)?;
    let mut canvas = [decoder.width(), decoder.height()].map(u64::from);
    check_size(canvas[0], canvas[1], most_pixels)?;
    let frame = decoder.next_frame_info().map_err(told)?.ok_or_else(|| damaged("it has no frame"))?;
    if frame.width == 0 || frame.height == 0 {
        return Err(damaged(format!("its first frame is {} x {}", frame.width, frame.height)));
    }
    // Pillow enlarges the canvas to the whole first frame.
    canvas[0] = canvas[0].max(u64::from(frame.left) + u64::from(frame.width));
    canvas[1] = canvas[1].max(u64::from(frame.top) + u64::from(frame.height));
    check_size(canvas[0], canvas[1], most_pixels)?;
    let mut indices = vec![0; decoder.buffer_size()];
    decoder.read_into_buffer(&mut indices).map_err(told)?;
    let frame = decoder.current_frame_info().ok_or_else(|| damaged("it has no frame"))?;
    let palette = frame.palette.as_deref().or(decoder.global_palette());
    let pixels = paint(frame, &indices, palette, canvas.map(|side| side as usize));
    let image = RgbImage::from_raw(canvas[0] as u32, canvas[1] as u32, pixels);
    Ok(DynamicImage::ImageRgb8(image.ok_or_else(|| damaged("it has fewer pixels than its size says"))?))
}

/// The frame on a canvas that is filled as in Pillow: with the transparent colour, or the first.
fn paint(frame: &Frame, indices: &[u8], palette: Option<&[u8]>, [width, height]: [usize; 2]) -> Vec<u8> {
    let colours: [[u8; 3]; 256] = std::array::from_fn(|index| match palette {
        Some(palette) => palette.as_chunks().0.get(index).copied().unwrap_or([0; 3]),
        // Without a palette, indices are levels of grey.
        None => [index as u8; 3],
    });
    let background = colours[usize::from(frame.transparent.unwrap_or(0))];
    let mut pixels = background.repeat(width * height);
    let rows = indices.chunks_exact(usize::from(frame.width).max(1));
    let places = pixels.chunks_exact_mut(width * 3).skip(frame.top.into());
    for (row, place) in rows.zip(places) {
        let place = place[usize::from(frame.left) * 3..].chunks_exact_mut(3);
        for (&index, pixel) in row.iter().zip(place) {
            pixel.copy_from_slice(&colours[usize::from(index)]);
        }
    }
    pixels
}

fn damaged(reason: impl Into<String>) -> ImageError {
    ImageError::Damaged { format: FORMAT, reason: reason.into() }
}

fn told(error: DecodingError) -> ImageError {
    match error {
        DecodingError::MemoryLimit | DecodingError::OutOfMemory => ImageError::Unsupported {
            format: FORMAT,
            reason: "it needs more memory than is allowed for one image".into(),
        },
        error => damaged(error.to_string()),
    }
}
