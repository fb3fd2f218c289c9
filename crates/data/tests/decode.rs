//! Decoding compared with Pillow's `convert("RGB")` and `convert("L")`, and everything that must be refused.

mod common;

use std::path::Path;

use common::{bytes, cases, fixture, integer, largest_difference, text};
use serde_json::Value;
use vitreous_data::image::{Channels, Image, ImageError, decode, open};

/// Levels by which a file may differ from Pillow's reading: five bits a channel are brought to eight by rounding or by
/// cutting. All others are equal.
fn allowed(file: &str) -> u8 {
    if file.starts_with("bits_5") { 1 } else { 0 }
}

/// All files that Pillow was given, by folder, with the size that it found.
fn all_cases() -> Vec<(&'static str, Value)> {
    let of = |folder: &'static str, at_least: usize| {
        cases(&format!("{folder}.json"), at_least).into_iter().map(move |case| (folder, case))
    };
    of("decode", 90).chain(of("tiff", 12)).collect()
}

#[test]
fn every_kind_of_file_gives_pillows_pixels() {
    let mut wrong = Vec::new();
    for (folder, case) in all_cases() {
        let file = text(&case, "file");
        let (width, height) = (integer(&case["width"]), integer(&case["height"]));
        let expected = bytes(&format!("{folder}/{file}.expected"));
        let (rgb, grey) = expected.split_at(width * height * 3);
        for (channels, theirs) in [(Channels::Rgb, rgb), (Channels::Grey, grey)] {
            match decode(&bytes(&format!("{folder}/{file}")), channels) {
                Ok(ours) if (ours.width(), ours.height()) != (width, height) => {
                    wrong.push(format!("{file}: {} x {}", ours.width(), ours.height()));
                }
                Ok(ours) => {
                    let largest = largest_difference(ours.pixels(), theirs);
                    if largest > allowed(file) {
                        wrong.push(format!("{file} in {channels:?}: {largest} levels"));
                    }
                }
                Err(error) => wrong.push(format!("{file}: {error}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Where a file may be cut without losing a pixel: at least this many bytes must be gone before it is an error.
fn harmless_end(file: &str) -> usize {
    match file {
        // The empty chunk that ends a PNG, and the checksums before it.
        _ if file.ends_with(".png") => 20,
        // The byte that ends a GIF, and the empty block before it.
        _ if file.ends_with(".gif") => 4,
        // Bytes that fill up a row or a chunk.
        _ if file.ends_with(".bmp") || file.ends_with(".webp") => 4,
        "trailing_bytes.jpg" => 4,
        _ => 0,
    }
}

#[test]
fn what_was_cut_off_is_an_error() {
    let mut wrong = Vec::new();
    for (folder, case) in all_cases() {
        let file = text(&case, "file");
        let whole = bytes(&format!("{folder}/{file}"));
        // Of an animation only the first frame is read, of pages the first.
        if file.starts_with("animated") || file.starts_with("pages") {
            continue;
        }
        let mut read = Vec::new();
        for length in 0..whole.len() - harmless_end(file) {
            if decode(&whole[..length], Channels::Rgb).is_ok() {
                read.push(length);
            }
        }
        if !read.is_empty() {
            wrong.push(format!("{file} of {} bytes: read when cut to {read:?}", whole.len()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Flips bytes all over every fixture: whatever comes of it, it is an image or an error.
#[test]
fn damaged_bytes_never_panic() {
    let mut state = 88172645463325252_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize
    };
    for (folder, case) in all_cases() {
        let whole = bytes(&format!("{folder}/{}", text(&case, "file")));
        for _ in 0..150 {
            let mut damaged = whole.clone();
            for _ in 0..1 + random() % 8 {
                let position = random() % damaged.len();
                damaged[position] = random() as u8;
            }
            let _ = decode(&damaged, Channels::Rgb);
        }
    }
}

fn png_header(width: u32, height: u32) -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    file.extend(width.to_be_bytes());
    file.extend(height.to_be_bytes());
    file.extend([8, 2, 0, 0, 0]);
    let checksum = crc32(&file[12..]);
    file.extend(checksum.to_be_bytes());
    let data = [b"IDAT".as_slice(), &[0x78, 0x9C, 0x63, 0, 0, 0, 1, 0, 1]].concat();
    file.extend((data.len() as u32 - 4).to_be_bytes());
    file.extend(&data);
    file.extend(crc32(&data).to_be_bytes());
    file
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg()))
    })
}

fn bmp_header(width: i32, height: i32) -> Vec<u8> {
    let mut file = b"BM\x36\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0".to_vec();
    file.extend(width.to_le_bytes());
    file.extend(height.to_le_bytes());
    file.extend([1, 0, 24, 0]);
    file.extend([0; 24]);
    file
}

fn gif_header(width: u16, height: u16) -> Vec<u8> {
    let mut file = b"GIF89a".to_vec();
    file.extend(width.to_le_bytes());
    file.extend(height.to_le_bytes());
    file.extend([0x80, 0, 0, 0, 0, 0, 255, 255, 255]);
    file.push(0x2C);
    file.extend([0; 4]);
    file.extend(width.to_le_bytes());
    file.extend(height.to_le_bytes());
    file.extend([0, 2, 2, 0x4C, 0x01, 0, 0x3B]);
    file
}

fn jpeg_header(width: u16, height: u16) -> Vec<u8> {
    let whole = bytes("decode/444.jpg");
    let frame = whole.windows(2).position(|pair| pair == [0xFF, 0xC0]).unwrap();
    let mut file = whole;
    file[frame + 5..frame + 7].copy_from_slice(&height.to_be_bytes());
    file[frame + 7..frame + 9].copy_from_slice(&width.to_be_bytes());
    file
}

fn tiff_header(width: u32, height: u32) -> Vec<u8> {
    let entries: [(u16, u32); 9] = [
        (256, width),
        (257, height),
        (258, 8),
        (259, 1),
        (262, 1),
        (273, 8),
        (277, 1),
        (278, height),
        (279, width.wrapping_mul(height)),
    ];
    let mut file = b"II*\0\x08\0\0\0\x09\0".to_vec();
    for (tag, value) in entries {
        file.extend(tag.to_le_bytes());
        file.extend([4, 0, 1, 0, 0, 0]);
        file.extend(value.to_le_bytes());
    }
    file.extend([0; 4]);
    file
}

#[test]
fn an_absurd_size_is_refused_before_memory_is_taken() {
    for (kind, file) in [
        ("PNG", png_header(60_000, 60_000)),
        ("PNG, long", png_header(1 << 30, 1)),
        ("BMP", bmp_header(60_000, 60_000)),
        ("BMP, top down", bmp_header(60_000, -60_000)),
        ("GIF", gif_header(60_000, 60_000)),
        ("JPEG", jpeg_header(60_000, 60_000)),
        ("TIFF", tiff_header(60_000, 60_000)),
    ] {
        let error = decode(&file, Channels::Rgb).unwrap_err();
        assert!(matches!(error, ImageError::TooLarge { .. }), "{kind}: {error}");
        assert!(error.to_string().contains("pixels"), "{kind}: {error}");
    }
}

#[test]
fn a_size_that_the_file_cannot_fill_is_refused_before_memory_is_taken() {
    let error = decode(&jpeg_header(13_000, 13_000), Channels::Rgb).unwrap_err();
    assert!(error.to_string().contains("the file ends before the image does"), "{error}");
}

/// Where a file's segments of this kind begin; the marker itself included.
fn segments_of(file: &[u8], marker: u8) -> Vec<usize> {
    (0..file.len() - 1).filter(|&at| file[at..].starts_with(&[0xFF, marker])).collect()
}

#[test]
fn a_jpeg_of_endless_scans_is_refused() {
    let file = bytes("decode/progressive.jpg");
    let scans = segments_of(&file, 0xDA);
    // The second bit of first coefficients: a bit for each block, whatever was there.
    let refining = scans.iter().position(|&at| file[at..at + 14].ends_with(&[0, 0, 0x10])).unwrap();
    let scan = &file[scans[refining]..segments_of(&file, 0xC4).into_iter().find(|&at| at > scans[refining]).unwrap()];
    let repeated = |times: usize| [&file[..scans[refining]], &scan.repeat(times), &file[scans[refining]..]].concat();
    assert_eq!(decode(&repeated(100), Channels::Rgb).unwrap(), decode(&file, Channels::Rgb).unwrap());
    let error = decode(&repeated(600), Channels::Rgb).unwrap_err();
    assert!(matches!(error, ImageError::Unsupported { .. }) && error.to_string().contains("501 scans"), "{error}");
}

#[test]
fn a_jpeg_of_a_kind_that_is_not_read_says_so() {
    let file = bytes("decode/444.jpg");
    let frame = segments_of(&file, 0xC0)[0];
    let edits: [(&[(usize, u8)], &str); 7] = [
        (&[(1, 0xC3)], "lossless"),
        (&[(1, 0xC5)], "hierarchical"),
        (&[(1, 0xC9)], "arithmetic"),
        (&[(1, 0xCA)], "arithmetic"),
        (&[(4, 12)], "12 bits"),
        (&[(9, 2)], "2 components"),
        (&[(11, 0x31), (14, 0x21)], "2 x 1 of 3 x 1"),
    ];
    for (edits, said) in edits {
        let mut other = file.clone();
        for &(at, value) in edits {
            other[frame + at] = value;
        }
        let error = decode(&other, Channels::Rgb).unwrap_err();
        assert!(matches!(error, ImageError::Unsupported { .. }) && error.to_string().contains(said), "{error}");
    }
}

/// Faults within a JPEG that leave parts of the image unknown. libjpeg warns, and Pillow shows grey there.
#[test]
fn a_jpeg_that_contradicts_itself_is_damaged() {
    let file = bytes("decode/restarts.jpg");
    let scan = segments_of(&file, 0xDA)[0];
    let restart = segments_of(&file, 0xD1)[0];
    let tables = segments_of(&file, 0xDB)[0];
    let frame = segments_of(&file, 0xC0)[0];
    let end = file.len() - 2;
    let without = |from: usize, to: usize| [&file[..from], &file[to..]].concat();
    let with = |at: usize, more: &[u8]| [&file[..at], more, &file[at..]].concat();
    for (what, other, said) in [
        ("a restart is missing", without(restart, restart + 2), "restart"),
        ("another restart comes first", with(restart, &[0xFF, 0xD5]), "restart"),
        ("data are missing", without(end - 20, end), "data end"),
        ("no code has so many ones", with(scan + 14, &[0xFF, 0, 0xFF, 0, 0xFF, 0]), "no code"),
        ("no quantisation", without(tables, tables + 2 + 67), "quantisation"),
        ("no frame", without(frame, frame + 2 + 17), "before the frame"),
        ("two frames", with(frame, &file[frame..frame + 19]), "two frames"),
        ("no scan", without(scan, end), "no data"),
        ("two scans of everything", with(end, &file[scan..end]), "scan after"),
        ("a marker without meaning", with(tables, &[0xFF, 0xF0, 0, 2]), "FF F0"),
        ("a segment of no length", with(tables, &[0xFF, 0xFE, 0, 1]), "length"),
    ] {
        let error = decode(&other, Channels::Rgb).unwrap_err();
        assert!(matches!(error, ImageError::Damaged { .. }) && error.to_string().contains(said), "{what}: {error}");
    }
}

#[test]
fn a_palette_that_ends_within_a_colour_is_damaged() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/decode");
    let mut file = std::fs::read(fixtures.join("palette_2_bits.png")).expect("a fixture");
    let at = file.windows(4).position(|name| name == b"PLTE").expect("a palette");
    let length = u32::from_be_bytes(file[at - 4..at].try_into().expect("a length")) - 1;
    file.remove(at + 4);
    file[at - 4..at].copy_from_slice(&length.to_be_bytes());
    let end = at + 4 + length as usize;
    let checksum = crc32(&file[at..end]);
    file[end..end + 4].copy_from_slice(&checksum.to_be_bytes());
    let error = decode(&file, Channels::Rgb).expect_err("a damaged palette").to_string();
    assert!(error.contains("palette"), "{error}");
}

#[test]
fn a_size_of_zero_is_an_error() {
    for (kind, file) in [
        ("PNG", png_header(0, 7)),
        ("BMP", bmp_header(7, 0)),
        ("GIF", gif_header(0, 7)),
        ("JPEG", jpeg_header(0, 7)),
        ("TIFF", tiff_header(0, 7)),
    ] {
        let error = decode(&file, Channels::Rgb).unwrap_err();
        assert!(matches!(error, ImageError::Damaged { .. } | ImageError::Unsupported { .. }), "{kind}: {error}");
    }
    assert!(matches!(Image::new(0, 0, Channels::Rgb, vec![]), Err(ImageError::Shape { .. })));
    assert!(matches!(Image::new(2, 2, Channels::Rgb, vec![0; 11]), Err(ImageError::Shape { .. })));
}

#[test]
fn what_is_no_image_is_said_to_be_none() {
    assert!(matches!(decode(b"", Channels::Rgb), Err(ImageError::Empty)));
    for text in ["hello, world", "\0\0\0\0"] {
        let error = decode(text.as_bytes(), Channels::Rgb).unwrap_err();
        assert!(matches!(error, ImageError::NotAnImage), "{error}");
    }
    let error = decode(b"II*\0\x08\0\0\0\0\0\0\0\0\0\0\0", Channels::Rgb).unwrap_err();
    assert!(error.to_string().contains("TIFF"), "{error}");
}

#[test]
fn formats_that_are_not_decoded_are_named_with_a_remedy() {
    let heic = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic";
    let avif = b"\0\0\0\x1cftypavif\0\0\0\0avifmif1miaf";
    let folder = tempfile::tempdir().unwrap();
    // Phones give HEIC images names of JPEG files.
    for (name, content, parts) in [
        ("IMG 1.heic", &heic[..], ["HEIC is not supported", "`magick 'IMG 1.heic' 'IMG 1.jpg'`"]),
        ("photo.jpg", heic, ["HEIC is not supported", "`magick photo.jpg photo-converted.jpg`"]),
        ("photo.avif", avif, ["AVIF is not supported", "`magick photo.avif photo.jpg`"]),
        ("drawing.svg", b"<svg></svg>", ["SVG is not supported", "`magick drawing.svg drawing.png`"]),
        ("photo.nef", &bytes("tiff/rgb.tif"), ["camera raw is not supported", "`magick photo.nef photo.jpg`"]),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        let error = open(&path, Channels::Rgb).unwrap_err().to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{name}: {error}");
    }
    assert!(decode(heic, Channels::Rgb).unwrap_err().to_string().contains("HEIC"));
}

#[test]
fn names_do_not_matter_and_folders_are_no_images() {
    let folder = tempfile::tempdir().unwrap();
    let misnamed = folder.path().join("image.jpg");
    std::fs::write(&misnamed, bytes("decode/rgb.png")).unwrap();
    let image = open(&misnamed, Channels::Rgb).unwrap();
    assert_eq!(image, open(&fixture("decode/rgb.png"), Channels::Rgb).unwrap());
    for path in [folder.path(), Path::new("/no/such/file"), &folder.path().join("absent")] {
        assert!(matches!(open(path, Channels::Rgb), Err(ImageError::Io(_))), "{}", path.display());
    }
}
