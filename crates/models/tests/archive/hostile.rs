//! Files that lie. Each is refused with an error, at once, without the memory that it claims.

use std::io::Write;

use proptest::prelude::*;
use vitreous_models::archive::{Archive, Result};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::{SINGLE_FILES, assert_says, bytes, read_all};

fn safetensors(header: &str, data: usize) -> Result<Archive> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(vec![0; data]);
    Archive::from_bytes(file)
}

fn one(dtype: &str, shape: &str, offsets: &str) -> String {
    format!(r#"{{"w": {{"dtype": "{dtype}", "shape": {shape}, "data_offsets": {offsets}}}}}"#)
}

#[test]
fn every_prefix_of_every_file_is_an_error_or_the_truth() {
    for name in SINGLE_FILES {
        let whole = bytes(name);
        let truth = read_all(&Archive::from_bytes(whole.clone()).unwrap()).unwrap();
        for length in 0..whole.len() {
            if let Ok(archive) = Archive::from_bytes(whole[..length].to_vec())
                && let Ok(read) = read_all(&archive)
            {
                assert_eq!(read, truth, "{name} cut at {length}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn changed_bytes_never_panic(
        file in 0..SINGLE_FILES.len(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut content = bytes(SINGLE_FILES[file]);
        for (place, byte) in changes {
            let place = place.index(content.len());
            content[place] = byte;
        }
        if let Ok(archive) = Archive::from_bytes(content) {
            let _ = read_all(&archive);
        }
    }
}

#[test]
fn safetensors_headers_that_claim_too_much_are_refused() {
    assert!(safetensors(&one("F32", "[2]", "[0, 8]"), 8).is_ok());
    let mut large = (90_000_000u64).to_le_bytes().to_vec();
    large.extend(b"{}");
    assert_says(Archive::from_bytes(large), &["90000000"]);
    let terabytes = one("F32", "[1000000000000]", "[0, 4000000000000]");
    assert_says(safetensors(&terabytes, 8), &["`w`", "beyond"]);
    assert!(safetensors(&one("F32", "[4294967296, 4294967296]", "[0, 8]"), 8).is_err());
    assert!(safetensors(&one("F32", "[0, 9999999999999, 9999999999999]", "[0, 0]"), 0).is_err());
    assert!(safetensors(&one("F32", "[3]", "[0, 8]"), 8).is_err());
    assert!(safetensors(&one("F32", "[2]", "[8, 0]"), 8).is_err());
    assert!(safetensors(&one("F32", "[2]", "[0, 8]"), 9).is_err());
    assert!(safetensors(&one("F99", "[2]", "[0, 8]"), 8).is_err());
    // The last range ends where adding the header's length to it wraps around.
    let step = (1usize << 61) - 1;
    let tensors = (0..8).map(|index| {
        let (start, end) = (index * step, (index + 1) * step);
        format!(r#""w{index}": {{"dtype": "U8", "shape": [{step}], "data_offsets": [{start}, {end}]}}"#)
    });
    let wraps = format!("{{{}}}", tensors.collect::<Vec<_>>().join(","));
    assert_says(safetensors(&wraps, 8), &["`w0`", "beyond"]);
}

#[test]
fn safetensors_that_overlap_or_repeat_are_refused() {
    let two = |second: &str, offsets: &str| {
        let tensor = |name: &str, offsets: &str| {
            format!(r#""{name}": {{"dtype": "U8", "shape": [4], "data_offsets": {offsets}}}"#)
        };
        safetensors(&format!("{{{}, {}}}", tensor("w", "[0, 4]"), tensor(second, offsets)), 8)
    };
    assert_eq!(two("v", "[4, 8]").unwrap().len(), 2);
    assert!(two("v", "[2, 6]").is_err());
    assert!(two("v", "[0, 4]").is_err());
    assert_says(two("w", "[4, 8]"), &["`w`", "twice"]);
    assert!(safetensors("{\"w\u{0}\": 3}", 0).is_err());
    let mut not_text = bytes("one.safetensors");
    not_text[10] = 0xff;
    assert_says(Archive::from_bytes(not_text), &["UTF-8"]);
}

#[test]
fn element_types_that_are_not_read_do_not_hide_the_others() {
    let header = r#"{"w": {"dtype": "U32", "shape": [1], "data_offsets": [0, 4]},
        "v": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}"#;
    let archive = safetensors(header, 8).unwrap();
    assert_eq!(archive.names().collect::<Vec<_>>(), ["v"]);
    assert_says(archive.tensor("w"), &["`w`", "U32", "f32"]);
}

/// A zip file of one entry, and where its local and its central header begin.
fn zip(name: &str, content: &[u8], method: CompressionMethod) -> (Vec<u8>, usize) {
    let mut writer = ZipWriter::new(std::io::Cursor::new(Vec::new()));
    writer.start_file(name, SimpleFileOptions::default().compression_method(method)).unwrap();
    writer.write_all(content).unwrap();
    let file = writer.finish().unwrap().into_inner();
    let central = file.windows(4).position(|four| four == b"PK\x01\x02").unwrap();
    (file, central)
}

fn npy(kind: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}");
    let mut array = b"\x93NUMPY\x01\x00".to_vec();
    array.extend((header.len() as u16).to_le_bytes());
    array.extend(header.as_bytes());
    array.extend(data);
    array
}

fn set_u32(file: &mut [u8], at: usize, value: u32) {
    file[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

#[test]
fn zip_bombs_are_refused_when_opened() {
    let (mut file, central) = zip("w.npy", &npy("|u1", "(4000000000,)", &[0; 1000]), CompressionMethod::Deflated);
    assert_says(Archive::from_bytes(file.clone()), &["`w`", "4000000000 bytes"]);
    let header = npy("|u1", "(4000000000,)", &[]).len() as u32;
    set_u32(&mut file, central + 24, 4_000_000_000 + header);
    assert_says(Archive::from_bytes(file), &["`w.npy`", "more than deflate can"]);
}

#[test]
fn entries_that_inflate_to_another_length_or_sum_are_refused_when_read() {
    let array = npy("|u1", "(2000,)", &[7; 2000]);
    let (good, central) = zip("w.npy", &array, CompressionMethod::Deflated);
    let read = |file: Vec<u8>| Archive::from_bytes(file).and_then(|archive| read_all(&archive));
    assert!(read(good.clone()).is_ok());
    let mut wrong_sum = good.clone();
    wrong_sum[central + 16] ^= 1;
    assert_says(read(wrong_sum), &["`w`", "checksum"]);
    let (mut shorter, central) = zip("w.npy", &npy("|u1", "(2001,)", &[7; 2000]), CompressionMethod::Deflated);
    set_u32(&mut shorter, central + 24, array.len() as u32 + 1);
    assert_says(read(shorter), &["`w`", "less than"]);
    let (mut longer, central) = zip("w.npy", &npy("|u1", "(1999,)", &[7; 2000]), CompressionMethod::Deflated);
    set_u32(&mut longer, central + 24, array.len() as u32 - 1);
    assert_says(read(longer), &["`w`", "more than"]);
}

#[test]
fn zip_entries_outside_of_the_file_are_refused() {
    let (good, central) = zip("w.npy", &npy("|u1", "(4,)", &[1; 4]), CompressionMethod::Stored);
    assert!(Archive::from_bytes(good.clone()).is_ok());
    let changed = |at: usize, value: u32| {
        let mut file = good.clone();
        set_u32(&mut file, at, value);
        Archive::from_bytes(file)
    };
    assert_says(changed(central + 42, 0xffff_fff0), &["`w.npy`", "outside"]);
    assert_says(changed(central + 42, 1), &["`w.npy`", "not where"]);
    assert_says(changed(central + 24, 0xffff_ffff), &["`w.npy`", "how large"]);
    assert!(changed(central + 20, 1 << 30).is_err());
    let end = good.len() - 22;
    assert!(changed(end + 16, 1 << 30).is_err());
    assert!(changed(end + 12, 1 << 30).is_err());
    let mut many = good.clone();
    many[end + 10..end + 12].copy_from_slice(&[0xff, 0xff]);
    assert_says(Archive::from_bytes(many), &["65535 entries"]);
    let mut encrypted = good.clone();
    encrypted[central + 8] |= 1;
    assert_says(Archive::from_bytes(encrypted), &["encrypted"]);
    let mut renamed = good.clone();
    renamed[30] = b'v';
    assert_says(Archive::from_bytes(renamed), &["`w.npy`", "differs"]);
}

#[test]
fn zip_entries_that_overlap_or_repeat_are_refused() {
    let mut writer = ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for name in ["v.npy", "w.npy"] {
        let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
        writer.start_file(name, stored).unwrap();
        writer.write_all(&npy("|u1", "(4,)", &[1; 4])).unwrap();
    }
    let good = writer.finish().unwrap().into_inner();
    let centrals: Vec<usize> = (0..good.len() - 4).filter(|at| good[*at..].starts_with(b"PK\x01\x02")).collect();
    assert_eq!(Archive::from_bytes(good.clone()).unwrap().len(), 2);

    let second_local = u32::from_le_bytes(good[centrals[1] + 42..centrals[1] + 46].try_into().unwrap()) as usize;
    let mut twice = good.clone();
    for at in [centrals[1] + 46, second_local + 30] {
        twice[at] = b'v';
    }
    assert_says(Archive::from_bytes(twice), &["`v.npy`", "twice"]);

    // Both entries of the directory lead to the same bytes.
    let mut overlapping = good.clone();
    set_u32(&mut overlapping, centrals[1] + 42, 0);
    overlapping[centrals[1] + 46] = b'v';
    assert_says(Archive::from_bytes(overlapping), &["overlap"]);

    // The first entry reaches into the second.
    let mut longer = good;
    let size = second_local as u32;
    set_u32(&mut longer, centrals[0] + 20, size);
    set_u32(&mut longer, centrals[0] + 24, size);
    assert_says(Archive::from_bytes(longer), &["overlap"]);
}

#[test]
fn arrays_that_disagree_with_their_entry_are_refused() {
    let open = |array: &[u8]| Archive::from_bytes(zip("w.npy", array, CompressionMethod::Stored).0);
    assert!(open(&npy("<f4", "(2,)", &[0; 8])).is_ok());
    assert_says(open(&npy("<f4", "(3,)", &[0; 8])), &["`w`", "12 bytes", "8 are there"]);
    assert_says(open(&npy("<f4", "(1,)", &[0; 8])), &["`w`"]);
    assert_says(open(&npy("<f4", "(9223372036854775807, 4)", &[0; 8])), &["`w`", "larger than any memory"]);
    assert_says(open(b"\x93NUMPY\x02\x00\xff\xff\xff\xff{"), &["`w`", "4294967295"]);
    assert_says(open(b"\x93NUMPY\x09\x00\xff\xff"), &["`w`", "version is 9"]);
    assert_says(open(b"hello"), &["`w`", ".npy"]);
}

/// A checkpoint of this pickle, with a storage `0` of 16 bytes.
fn checkpoint(pickle: &[u8]) -> Result<Archive> {
    zip_of(&[("a/data.pkl", pickle), ("a/data/0", &[0; 16])])
}

fn zip_of(entries: &[(&str, &[u8])]) -> Result<Archive> {
    let mut writer = ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    for (name, content) in entries {
        writer.start_file(*name, stored).unwrap();
        writer.write_all(content).unwrap();
    }
    Archive::from_bytes(writer.finish().unwrap().into_inner())
}

/// `{'w': torch._utils._rebuild_tensor_v2(storage, offset, size, stride, False, None)}`, the last three of size as opcodes.
fn pickled_tensor(storage: &[u8], offset_size_stride: &[u8]) -> Vec<u8> {
    let mut pickle = b"\x80\x02}X\x01\0\0\0wctorch._utils\n_rebuild_tensor_v2\n(".to_vec();
    pickle.extend(storage);
    pickle.extend(offset_size_stride);
    pickle.extend(b"\x89NtRs.");
    pickle
}

const STORAGE: &[u8] = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x04tQ";

#[test]
fn tensors_that_reach_beyond_their_storage_are_refused() {
    let open = |layout: &[u8]| checkpoint(&pickled_tensor(STORAGE, layout));
    assert_eq!(open(b"K\x00K\x02K\x02\x86K\x02K\x01\x86").unwrap().tensor("w").unwrap().shape, &[2, 2]);
    assert_says(open(b"K\x01K\x02K\x02\x86K\x02K\x01\x86"), &["`w`", "beyond its storage of 4"]);
    assert_says(open(b"K\x00K\x02\x85K\x04\x85"), &["`w`", "beyond"]);
    assert_says(open(b"K\x00K\x02\x85J\xff\xff\xff\xff\x85"), &["`w`", "natural number"]);
    assert_says(open(b"K\x00K\x02\x85K\x02K\x01\x86"), &["`w`", "1 dimensions, but 2 strides"]);
    assert_says(open(b"K\x00K\x02\x85\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x85"), &["`w`", "beyond"]);
    let overflow = b"K\x00\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7fK\x04\x86K\x00K\x00\x86";
    assert_says(open(overflow), &["`w`", "larger than any memory"]);
    let larger = STORAGE.iter().map(|byte| if *byte == 4 { 5 } else { *byte }).collect::<Vec<u8>>();
    assert_says(checkpoint(&pickled_tensor(&larger, b"K\x00K\x02\x85K\x01\x85")), &["`w`", "5 elements, but has 4"]);
    let missing = STORAGE.iter().map(|byte| if *byte == b'0' { b'1' } else { *byte }).collect::<Vec<u8>>();
    assert_says(checkpoint(&pickled_tensor(&missing, b"K\x00K\x02\x85K\x01\x85")), &["`w`", "storage `1`"]);
}

#[test]
fn storages_of_big_endian_machines_are_read() {
    let pickle = pickled_tensor(STORAGE, b"K\x00K\x04\x85K\x01\x85");
    let storage: Vec<u8> = [0.0f32, 1.0, 2.0, 3.0].iter().flat_map(|number| number.to_be_bytes()).collect();
    let archive = zip_of(&[("a/data.pkl", &pickle), ("a/byteorder", b"big"), ("a/data/0", &storage)]).unwrap();
    super::assert_holds(&archive, "w", &[4], &[0.0, 1.0, 2.0, 3.0]);
}

#[test]
fn zip_files_of_anything_else_are_refused() {
    let pickle = pickled_tensor(STORAGE, b"K\x00K\x04\x85K\x01\x85");
    assert_says(zip_of(&[("a/data.pkl", &pickle), ("b/data.pkl", &pickle)]), &["more than one checkpoint"]);
    assert_says(zip_of(&[("readme.txt", b"hello")]), &["neither", "unpack"]);
}

#[test]
fn one_number_is_not_expanded_to_all_memory() {
    let archive = checkpoint(&pickled_tensor(STORAGE, b"K\x00J\xff\xff\xff\x7f\x85K\x00\x85")).unwrap();
    assert_says(archive.tensor("w"), &["`w`", "2147483647", "repeat"]);
}

#[test]
fn commands_in_a_pickle_are_never_run() {
    let archive = super::open("command.pth");
    super::assert_holds(&archive, "weight", &[3], &[0.0, 1.0, 2.0]);
    assert_says(archive.tensor("evil"), &["`evil`", "posix.system", "ever run"]);
    assert!(!std::path::Path::new("/tmp/vitreous-was-here").exists());
    // A tensor that depends on one.
    let pickle = pickled_tensor(b"cposix\nsystem\nX\x04\0\0\0true\x85R", b"K\x00K\x02\x85K\x01\x85");
    assert_says(checkpoint(&pickle).unwrap().tensor("w"), &["`w`", "posix.system"]);
}

/// A dictionary that holds the one below it twice, so many levels deep.
fn doubling(levels: usize) -> Vec<u8> {
    let mut pickle = b"\x80\x02}X\x01\0\0\0aNs".to_vec();
    for level in 0..levels {
        pickle.extend([b'q', level as u8, b'0', b'}', b'(']);
        for name in [b'a', b'b'] {
            pickle.extend([b'X', 1, 0, 0, 0, name, b'h', level as u8]);
        }
        pickle.push(b'u');
    }
    pickle.push(b'.');
    pickle
}

#[test]
fn pickles_that_double_themselves_are_refused() {
    assert!(checkpoint(&doubling(10)).is_ok());
    assert_says(checkpoint(&doubling(60)), &["repeats itself"]);
    // One that holds itself.
    assert_says(checkpoint(b"\x80\x02}q\x00X\x01\0\0\0ah\x00s."), &["nests deeper"]);
    assert_says(checkpoint(b"\x80\x02]q\x00(h\x00h\x00e."), &["nests deeper"]);
}

/// If every use of a long text cost its length, this would take hours.
#[test]
fn long_texts_that_are_used_often_cost_nothing() {
    let (length, uses) = (1 << 22, 1 << 18);
    let long = "x".repeat(length);
    let mut keys = [b"\x80\x02X", &(length as u32).to_le_bytes()[..], long.as_bytes(), b"q\x00}q\x01("].concat();
    keys.extend(b"h\x00h\x01".repeat(uses));
    keys.extend(b"u.");
    assert!(checkpoint(&keys).unwrap().is_empty());
    let mut calls = [b"\x80\x02(c", long.as_bytes(), b"\nf\n)Rq\x00"].concat();
    calls.extend(b"h\x00".repeat(uses));
    calls.extend(b"t.");
    assert_says(checkpoint(&calls).unwrap().tensor("5"), &["`5`", "xxx"]);
}

#[test]
fn names_that_meet_are_refused() {
    let tensor = &pickled_tensor(STORAGE, b"K\x00K\x02\x85K\x01\x85")[9..];
    let call = &tensor[..tensor.len() - 2];
    let mut pickle = b"\x80\x02}(X\x03\0\0\0a.b".to_vec();
    pickle.extend(call);
    pickle.extend(b"X\x01\0\0\0a}X\x01\0\0\0b");
    pickle.extend(call);
    pickle.extend(b"su.");
    assert_says(checkpoint(&pickle), &["`a.b`", "twice"]);
}

#[test]
fn old_streams_that_claim_too_much_are_refused() {
    let good = bytes("parts_old.pth");
    let count = good.len() - 12 * 4 - 8;
    for claim in [13i64, -1, i64::MAX, i64::MIN, 1 << 61] {
        let mut file = good.clone();
        file[count..count + 8].copy_from_slice(&claim.to_le_bytes());
        assert_says(Archive::from_bytes(file), &["storage `1`", "beyond"]);
    }
    assert_says(Archive::from_bytes(b"\x80\x02K\x01.".to_vec()), &["not a checkpoint"]);
    let version = good.windows(3).position(|three| three == [b'M', 0xe9, 0x03]).unwrap();
    let mut newer = good;
    newer[version + 1] += 1;
    assert_says(Archive::from_bytes(newer), &["version"]);
}
