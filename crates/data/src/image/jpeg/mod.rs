//! JPEG (ITU-T T.81): the pixels that libjpeg-turbo gives, as Pillow and `torchvision` use it, to the bit.
//!
//! The standard leaves rounding to the decoder. What a model sees should not depend on it, so everything that rounds here ([`idct`],
//! [`upsample`], [`colour`]) does so as libjpeg-turbo with its default settings. No Rust decoder does that: hence one of our own.
//!
//! Sequential and progressive files with Huffman codes, 8 bits and 1, 3 or 4 components are supported. Truncated or invalid data are an
//! error, where libjpeg would warn and leave parts grey. Stray bytes between segments are skipped.

mod bits;
mod colour;
mod frame;
mod huffman;
mod idct;
mod output;
mod progressive;
mod scan;
mod sequential;
mod tables;
mod upsample;

use image::metadata::Orientation;
use image::{DynamicImage, GrayImage, RgbImage};

use self::bits::Fault;
use self::frame::Frame;
use self::output::Output;
use self::progressive::Blocks;
use self::scan::Scan;
use self::tables::Tables;
use self::upsample::Plane;
use crate::image::error::ImageError;

const FORMAT: &str = "JPEG";

/// The maximum number of scans. Encoders write about ten.
const MOST_SCANS: usize = 500;
/// How often the scans may visit all blocks, so that a large image of many scans does not take forever.
const MOST_ROUNDS: usize = 100;
/// Images of so few blocks may have the maximum number of scans.
const FEW_BLOCKS: usize = 1 << 16;

pub(crate) fn decode(bytes: &[u8], most_pixels: u64) -> Result<DynamicImage, ImageError> {
    let mut decoder = Decoder {
        file: bytes,
        most_pixels,
        at: 2,
        tables: Tables::new(),
        jfif: false,
        adobe_transform: None,
        exif: None,
        image: None,
    };
    decoder.read_to_end()?;
    let orientation = decoder.exif.and_then(Orientation::from_exif_chunk);
    let image = decoder.image.ok_or_else(|| damaged("there is no frame"))?;
    let mut image = image.finish()?;
    image.apply_orientation(orientation.unwrap_or(Orientation::NoTransforms));
    Ok(image)
}

fn damaged(reason: impl Into<String>) -> ImageError {
    ImageError::Damaged { format: FORMAT, reason: reason.into() }
}

fn unsupported(reason: impl Into<String>) -> ImageError {
    ImageError::Unsupported { format: FORMAT, reason: reason.into() }
}

fn truncated() -> ImageError {
    damaged("the file ends before the image does")
}

fn damaged_data(fault: Fault) -> ImageError {
    damaged(match fault {
        Fault::Ended => "its data end before the image does",
        Fault::NoSuchCode => "its data have bits that are no code of the table",
        Fault::NoRestart => "a restart marker is missing",
    })
}

fn missing_quantisation() -> ImageError {
    damaged("a component's table of quantisation is not defined")
}

/// Reads segment after segment.
struct Decoder<'a> {
    file: &'a [u8],
    most_pixels: u64,
    at: usize,
    tables: Tables,
    jfif: bool,
    adobe_transform: Option<u8>,
    exif: Option<&'a [u8]>,
    image: Option<Picture>,
}

impl<'a> Decoder<'a> {
    fn read_to_end(&mut self) -> Result<(), ImageError> {
        loop {
            let (marker, after) = bits::next_marker(self.file, self.at).ok_or_else(truncated)?;
            self.at = after;
            match marker {
                0xD9 => return Ok(()),
                // Superfluous restarts, and a marker without meaning.
                0xD0..=0xD7 | 0x01 => continue,
                _ => {}
            }
            let segment = self.segment()?;
            match marker {
                0xC0..=0xC2 if self.image.is_some() => return Err(damaged("there are two frames")),
                0xC0..=0xC2 => self.image = Some(Picture::new(Frame::new(segment, marker == 0xC2, self.most_pixels)?)),
                0xC4 => self.tables.define_huffman(segment)?,
                0xDB => self.tables.define_quantisation(segment)?,
                0xDD => self.tables.define_restarts(segment)?,
                0xDA => self.scan(segment)?,
                0xE0 if segment.starts_with(b"JFIF\0") && segment.len() >= 14 => self.jfif = true,
                0xE1 if self.exif.is_none() => self.exif = segment.strip_prefix(b"Exif\0\0"),
                0xEE if segment.starts_with(b"Adobe") && segment.len() >= 12 => {
                    self.adobe_transform = Some(segment[11])
                }
                0xC3 | 0xC5..=0xC7 | 0xC9..=0xCB | 0xCD..=0xCF => return Err(unsupported(process(marker))),
                // Comments, application data, and definitions for other coding processes only.
                0xE0..=0xEF | 0xFE | 0xCC | 0xDC => {}
                _ => return Err(damaged(format!("it has an unknown marker FF {marker:02X}"))),
            }
        }
    }

    /// The segment that begins here with its length.
    fn segment(&mut self) -> Result<&'a [u8], ImageError> {
        let rest = self.file.get(self.at..).unwrap_or(&[]);
        let length = usize::from(u16::from_be_bytes(*rest.first_chunk().ok_or_else(truncated)?));
        if length < 2 {
            return Err(damaged("a segment is shorter than its length"));
        }
        self.at += length;
        rest.get(2..length).ok_or_else(truncated)
    }

    fn scan(&mut self, segment: &[u8]) -> Result<(), ImageError> {
        let image = self.image.as_mut().ok_or_else(|| damaged("a scan comes before the frame"))?;
        // Each block takes at least one bit: no memory is allocated for a size that the file cannot fill.
        if image.frame.blocks() / 8 > self.file.len() {
            return Err(truncated());
        }
        let scan = Scan::new(segment, &image.frame)?;
        image.count(&scan)?;
        if image.scans == 1 {
            image.begin(&scan, self.jfif, self.adobe_transform);
            if !image.frame.progressive {
                self.tables.add_standard();
            }
        }
        self.at = image.read(self.file, self.at, &scan, &self.tables)?;
        Ok(())
    }
}

/// The coding processes that are not supported, by the frame's marker.
fn process(marker: u8) -> &'static str {
    match marker {
        0xC3 => "lossless coding",
        0xC5..=0xC7 => "hierarchical coding",
        0xCB => "lossless arithmetic coding",
        0xC9 | 0xCA => "arithmetic coding",
        _ => "hierarchical arithmetic coding",
    }
}

/// The image while its scans are read.
struct Picture {
    frame: Frame,
    scans: usize,
    blocks_read: usize,
    /// By component: its quantisation table when its first scan began.
    quantisation: [Option<[i16; 64]>; 4],
    planes: Vec<Plane>,
    /// Of a progressive image.
    blocks: Vec<Blocks>,
    output: Option<Output>,
    /// Whether one scan had everything.
    complete: bool,
}

impl Picture {
    fn new(frame: Frame) -> Picture {
        Picture {
            frame,
            scans: 0,
            blocks_read: 0,
            quantisation: [None; 4],
            planes: Vec::new(),
            blocks: Vec::new(),
            output: None,
            complete: false,
        }
    }

    /// Limits the work of scans.
    fn count(&mut self, scan: &Scan) -> Result<(), ImageError> {
        if self.complete {
            return Err(damaged("there is a scan after the one that had everything"));
        }
        self.scans += 1;
        self.blocks_read += scan.parts.iter().map(|part| self.frame.components[part.component].blocks()).sum::<usize>();
        let most = MOST_ROUNDS * self.frame.blocks().max(FEW_BLOCKS);
        if self.scans > MOST_SCANS || self.blocks_read > most {
            return Err(unsupported(format!("{} scans or more, which would take too long", self.scans)));
        }
        Ok(())
    }

    /// Allocates memory when the first scan begins.
    fn begin(&mut self, scan: &Scan, jfif: bool, adobe_transform: Option<u8>) {
        let Frame { progressive, units_down, .. } = self.frame;
        // In an interleaved scan, pixels are written as soon as there are samples, and the next rows of MCUs reuse the memory. Two rows are
        // kept, because pixels are interpolated with samples of the MCU above.
        let together = progressive || scan.parts.len() == self.frame.components.len();
        let units_kept = if together { units_down.min(2) } else { units_down };
        for component in &self.frame.components {
            let (rows, stride) = (8 * component.down * units_kept, 8 * component.blocks_across);
            let (width, height) = (component.width, component.height);
            self.planes.push(Plane { samples: vec![0; rows * stride], rows, stride, width, height });
            if progressive {
                self.blocks.push(vec![[0; 64]; component.blocks()]);
            }
        }
        self.output = Some(Output::new(&self.frame, self.frame.colour(jfif, adobe_transform)));
    }

    /// Reads a scan; gives a position that is not after the next marker.
    fn read(&mut self, file: &[u8], at: usize, scan: &Scan, tables: &Tables) -> Result<usize, ImageError> {
        for part in &scan.parts {
            let table = tables.quantisation[self.frame.components[part.component].quantisation];
            let latched = &mut self.quantisation[part.component];
            // Tables that are defined later are for other components, though they may have the same number.
            *latched = Some(latched.or(table).ok_or_else(missing_quantisation)?);
        }
        if self.frame.progressive {
            return progressive::read(file, at, &self.frame, scan, tables, &mut self.blocks);
        }
        self.complete = scan.parts.len() == self.frame.components.len();
        let output = self.output.as_mut().filter(|_| self.complete);
        sequential::read(file, at, &self.frame, scan, tables, &self.quantisation, &mut self.planes, output)
    }

    fn finish(mut self) -> Result<DynamicImage, ImageError> {
        if self.quantisation[..self.frame.components.len()].contains(&None) {
            return Err(damaged("a component has no data"));
        }
        let mut output = self.output.take().ok_or_else(|| damaged("there is no scan"))?;
        if self.frame.progressive {
            for row in 0..self.frame.units_down {
                for (index, component) in self.frame.components.iter().enumerate() {
                    let quantisation = self.quantisation[index].as_ref().ok_or_else(missing_quantisation)?;
                    for row in row * component.down..(row + 1) * component.down {
                        progressive::finish(component, &self.blocks[index], quantisation, row, &mut self.planes[index]);
                    }
                }
                output.write_units(&self.planes, row + 1);
            }
        }
        output.write_units(&self.planes, usize::MAX);
        let (width, height) = (self.frame.width as u32, self.frame.height as u32);
        let image = match self.frame.components.len() {
            1 => GrayImage::from_raw(width, height, output.pixels).map(DynamicImage::ImageLuma8),
            _ => RgbImage::from_raw(width, height, output.pixels).map(DynamicImage::ImageRgb8),
        };
        image.ok_or_else(|| damaged("it has fewer pixels than its size says"))
    }
}
