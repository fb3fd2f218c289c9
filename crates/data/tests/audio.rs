//! Audio files against ffmpeg, spectrograms against openai-whisper, and what is no audio.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use vitreous_data::audio::{
    AudioError, AudioReader, AudioSource, Behind, FRAMES_PER_SECOND, SAMPLE_RATE, Spectrogram, mel_filters,
    read_samples,
};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/audio").join(name)
}

fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(fixture(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn floats(name: &str) -> Vec<f32> {
    bytes(name).chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().expect("four"))).collect()
}

fn samples(reader: &mut AudioReader) -> Vec<f32> {
    read_samples(reader, usize::MAX).expect("decodes")
}

/// The largest difference, and the energy of all differences against that of the samples.
fn difference(found: &[f32], expected: &[f32]) -> (f32, f32) {
    let pairs = || found.iter().zip(expected);
    let largest = pairs().map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    let energy = |values: &mut dyn Iterator<Item = f32>| values.map(|value| value * value).sum::<f32>();
    (largest, energy(&mut pairs().map(|(a, b)| a - b)) / energy(&mut expected.iter().copied()))
}

#[test]
fn samples_are_those_of_ffmpeg() {
    // The largest difference where nothing is resampled; otherwise the energy of the differences: the filters are not the same.
    let cases = [
        ("mono.wav", 1e-6, 1e-6),
        ("float.wav", 1e-6, 1e-6),
        ("mono.flac", 1e-6, 1e-6),
        ("lossless.m4a", 1e-6, 1e-6),
        ("mono.aiff", 1e-6, 1e-6),
        ("mono.mp3", 1e-3, 1e-4),
        ("mono.ogg", 1e-3, 1e-4),
        ("mono.m4a", 1e-3, 1e-4),
        ("wide.wav", 0.05, 1e-3),
        ("stereo.flac", 0.05, 1e-3),
        ("law.wav", 0.05, 2e-3),
    ];
    for (name, most, most_energy) in cases {
        // ffmpeg keeps what encoders pad the last packet with.
        let longer = if most == 1e-3 { 2048 } else { 16 };
        let stored = bytes(&format!("{name}.samples"));
        let expected: Vec<f32> =
            stored.chunks_exact(2).map(|two| f32::from(i16::from_le_bytes([two[0], two[1]])) / 32768.0).collect();
        let from_file =
            samples(&mut AudioReader::open(&fixture(name)).unwrap_or_else(|error| panic!("{name}: {error}")));
        assert!(
            from_file.len().abs_diff(expected.len()) <= longer,
            "{name}: {} of {}",
            from_file.len(),
            expected.len()
        );
        // AAC's decoder here keeps the encoder's delay, which ffmpeg leaves out: 1,024 samples.
        let delay = if name == "mono.m4a" { 1024 } else { 0 };
        let (largest, energy) = difference(&from_file[delay..], &expected);
        // The expected values are rounded to 16 bits.
        assert!(largest < most + 1.0 / 32768.0 && energy < most_energy, "{name}: {largest}, {energy}");
        let from_memory = samples(&mut AudioReader::from_bytes(bytes(name).into()).expect(name));
        assert_eq!(from_memory, from_file, "{name}");
        if !name.ends_with("m4a") {
            let from_pipe = samples(&mut AudioReader::from_reader(std::io::Cursor::new(bytes(name))).expect(name));
            assert_eq!(from_pipe, from_file, "{name}");
        }
    }
}

#[test]
fn mel_filters_are_those_of_librosa() {
    for bins in [80, 128] {
        let mut expected = vec![0f32; bins * 201];
        for entry in bytes(&format!("filters.{bins}")).chunks_exact(8) {
            let number = |at: usize| usize::from(u16::from_le_bytes([entry[at], entry[at + 1]]));
            expected[number(0) * 201 + number(2)] = f32::from_le_bytes(entry[4..].try_into().expect("four"));
        }
        let found = mel_filters(bins);
        let worst = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < 1e-8, "{bins} bins: {worst:e}");
    }
}

#[test]
fn spectrograms_are_those_of_openai() {
    for bins in [80, 128] {
        let expected = floats(&format!("mono.{bins}.mel"));
        let mut found = vec![0.0; expected.len()];
        let mut spectrogram = Spectrogram::open(&AudioSource::File(fixture("mono.wav")), bins).expect("opens");
        let frames = spectrogram.length().expect("short enough to be read whole");
        assert_eq!(frames, expected.len() / bins - 4);
        spectrogram.window(0, usize::MAX, Behind::Silence, &mut found).expect("there");
        // The peer rounds to f32 everywhere: of 128 bins its own result is 1.1e-5 away from what it computes in f64.
        let (largest, _) = difference(&found, &expected);
        assert!(largest < 1.2e-5, "{bins} bins: {largest:e}");
        let (from_exact, _) = difference(&found, &floats(&format!("mono.{bins}.mel64")));
        assert!(from_exact < 1e-6, "{bins} bins: {from_exact:e}");
        // Behind the end of a window for transcription there are zeros.
        spectrogram.window(0, frames, Behind::Zero, &mut found).expect("there");
        assert_eq!(difference(&found[..frames * bins], &expected[..frames * bins]).0, largest);
        assert!(found[frames * bins..].iter().all(|&value| value == 0.0));
    }
}

#[test]
fn a_spectrogram_forgets_what_was_used_and_repeats_the_rest() {
    let source = AudioSource::Bytes(bytes("mono.wav").into());
    let mut whole = Spectrogram::open(&source, 80).expect("opens");
    let (mut first, mut again) = (vec![0.0; 30 * 80], vec![0.0; 30 * 80]);
    whole.window(40, 70, Behind::Zero, &mut first).expect("there");
    whole.forget_before(40);
    whole.window(40, 70, Behind::Zero, &mut again).expect("there");
    assert_eq!(first, again);
    // Through a pipe the loudest frame is that so far, at the end the same.
    let mut piped = Spectrogram::of_stream(std::io::Cursor::new(bytes("mono.wav")), 80).expect("opens");
    piped.read_to(usize::MAX).expect("reads");
    piped.window(40, 70, Behind::Zero, &mut again).expect("there");
    assert_eq!(first, again);
    let samples = samples(&mut AudioReader::open(&fixture("mono.wav")).expect("opens"));
    let mut given = Spectrogram::of_samples(samples, 80).expect("finite");
    given.window(40, 70, Behind::Zero, &mut again).expect("there");
    assert_eq!(first, again);
}

#[test]
fn a_recording_that_is_too_long_is_refused_also_if_it_states_no_length() {
    let stated = bytes("mono.flac");
    // The number of samples has 36 bits; 0 is unknown.
    let mut silent = stated.clone();
    silent[21] &= 0xf0;
    silent[22..26].fill(0);
    for (file, states) in [(stated, true), (silent, false)] {
        let source = AudioSource::Bytes(file.into());
        assert_eq!(source.open().expect("opens").stated_length().is_some(), states);
        let whole = Spectrogram::open_within(&source, 80, 1000.0).expect("short enough").length().expect("read");
        let seconds = whole as f64 / FRAMES_PER_SECOND as f64;
        let refused = Spectrogram::open_within(&source, 80, seconds / 2.0).expect_err("too long").to_string();
        assert!(refused.contains("the recording is longer than"), "{refused}");
        assert_eq!(Spectrogram::open_within(&source, 80, seconds + 0.1).expect("just fits").length(), Some(whole));
    }
}

#[test]
fn hardly_any_samples_have_a_spectrogram() {
    for count in [0, 1, 100, 200, 201, 400] {
        let mut spectrogram = Spectrogram::of_samples(vec![0.25; count], 80).expect("finite");
        assert_eq!(spectrogram.length(), Some(count / 160), "{count}");
        let mut window = vec![f32::NAN; 8 * 80];
        spectrogram.window(0, 8, Behind::Silence, &mut window).expect("there");
        assert!(window.iter().all(|value| value.is_finite()), "{count}");
    }
}

/// A WAV file of floats.
fn wav(rate: u32, channels: u16, samples: &[f32]) -> Vec<u8> {
    let data: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    let mut file = b"RIFF".to_vec();
    file.extend((36 + data.len() as u32).to_le_bytes());
    file.extend(b"WAVEfmt \x10\0\0\0\x03\0");
    file.extend(channels.to_le_bytes());
    file.extend(rate.to_le_bytes());
    file.extend(rate.saturating_mul(u32::from(channels)).saturating_mul(4).to_le_bytes());
    file.extend((channels * 4).to_le_bytes());
    file.extend(b"\x20\0data");
    file.extend((data.len() as u32).to_le_bytes());
    file.extend(data);
    file
}

fn read(file: Vec<u8>) -> Result<Vec<f32>, AudioError> {
    read_samples(&mut AudioReader::from_bytes(Arc::from(file))?, usize::MAX)
}

#[test]
fn what_cannot_be_read_gets_a_sentence() {
    let refusal = |file: Vec<u8>| read(file).expect_err("refused").to_string();
    assert_eq!(refusal(Vec::new()), "the file is empty");
    assert_eq!(refusal(wav(16_000, 1, &[])), "the file has no audio in it: its length is zero");
    assert!(refusal(wav(1, 1, &[0.5; 100])).contains("1 samples per second"), "{}", refusal(wav(1, 1, &[0.5; 100])));
    assert!(refusal(wav(4_000_000_000, 1, &[0.5; 100])).contains("4000000000 samples"));
    let mut with_nan = vec![0.25; 16_000];
    with_nan[8000] = f32::NAN;
    assert_eq!(refusal(wav(16_000, 1, &with_nan)), "a sample at 0.50 s is not a number");
    assert_eq!(refusal(wav(16_000, 2, &with_nan)), "a sample at 0.25 s is not a number");
    assert_eq!(refusal(b"\x89PNG\r\n\x1a\n and so on".to_vec()), "this is a picture (PNG), not audio");
    assert!(refusal(bytes("opus.ogg")).starts_with("Opus is not supported; convert it first"));
    assert!(refusal(b"some words about a recording, over and over again, in a text".repeat(50)).contains("not audio"));
    let missing = AudioReader::open(Path::new("no such file.wav")).expect_err("missing").to_string();
    assert!(missing.starts_with("cannot be read"), "{missing}");
}

#[test]
fn unusual_rates_and_channels_are_read() {
    let second =
        |rate: u32, channels: u16| read(wav(rate, channels, &vec![0.25; (rate * u32::from(channels)) as usize]));
    assert_eq!(second(192_000, 1).expect("reads").len(), SAMPLE_RATE as usize);
    assert_eq!(second(1000, 2).expect("reads").len(), SAMPLE_RATE as usize);
    let many = second(16_000, 26).expect("reads");
    assert!(many.len() == 16_000 && many.iter().all(|&sample| (sample - 0.25).abs() < 1e-6));
    for channels in [27, 32, 16_000] {
        let said = read(wav(1000, channels, &vec![0.25; usize::from(channels)])).expect_err("too many").to_string();
        assert!(said.starts_with(&format!("it has {channels} channels")) && said.contains("-ac 1"), "{said}");
    }
    // Louder than loud is loud, as in a file of integers.
    assert!(read(wav(16_000, 1, &[7.0; 200])).expect("reads").iter().all(|&sample| sample == 1.0));
}

#[test]
fn what_is_cut_off_is_read_as_far_as_it_goes() {
    for name in ["mono.wav", "mono.flac", "mono.mp3", "wide.wav"] {
        let (whole, file) = (samples(&mut AudioReader::open(&fixture(name)).expect(name)), bytes(name));
        let mut reader = AudioReader::from_bytes(file[..file.len() / 2].into()).expect(name);
        let half = samples(&mut reader);
        let share = half.len() as f32 / whole.len() as f32;
        assert!((0.1..0.8).contains(&share), "{name}: {share}");
        if name.ends_with("wav") || name.ends_with("flac") {
            let damage = reader.damage().unwrap_or_default();
            assert!(damage.contains("ends in the middle"), "{name}: {damage}");
        }
    }
    // Nothing that is cut off anywhere makes a reader panic.
    for name in ["mono.wav", "mono.flac", "mono.mp3", "mono.ogg", "mono.m4a", "lossless.m4a", "mono.aiff"] {
        let file = bytes(name);
        for length in (0..file.len()).step_by(file.len() / 40 + 1) {
            let _ = read(file[..length].to_vec());
        }
    }
    assert_eq!(FRAMES_PER_SECOND, 100);
}

/// As `arecord`, `sox` and `ffmpeg` write into pipes: the longest length that fits, or nearly.
#[test]
fn a_length_that_nobody_knew_is_not_believed_of_a_pipe() {
    let ramp: Vec<f32> = (0..20_000).map(|place| (place % 100) as f32 / 200.0).collect();
    let mut file = wav(16_000, 1, &ramp);
    let whole = read(file.clone()).expect("reads");
    for stated in [0x8000_0000u32, 0x7fff_ffe0, u32::MAX] {
        file[4..8].copy_from_slice(&stated.saturating_add(36).to_le_bytes());
        file[40..44].copy_from_slice(&stated.to_le_bytes());
        let mut reader = AudioReader::from_reader(std::io::Cursor::new(file.clone())).expect("opens");
        assert_eq!(reader.stated_length(), None);
        assert_eq!(samples(&mut reader), whole);
        assert_eq!(reader.damage(), None, "{stated:x}");
    }
    // A length that may well be true.
    let mut reader =
        AudioReader::from_reader(std::io::Cursor::new(wav(16_000, 1, &ramp)[..44 + 40_000].to_vec())).expect("opens");
    assert_eq!(samples(&mut reader).len(), 10_000);
    assert!(reader.damage().expect("cut").contains("0.6 of 1.2 seconds"), "{:?}", reader.damage());
}

#[test]
fn what_a_pipe_gave_before_it_failed_is_kept() {
    let mut samples = vec![0.25; 64_000];
    samples[48_000] = f32::NAN;
    let mut piped = Spectrogram::of_stream(std::io::Cursor::new(wav(16_000, 1, &samples)), 80).expect("opens");
    // Up to the packet that has it.
    let frames = piped.read_to(usize::MAX).expect("kept");
    assert!((290..=300).contains(&frames), "{frames}");
    assert_eq!(piped.failure().map(ToString::to_string).as_deref(), Some("a sample at 3.00 s is not a number"));
    // Where there is nothing to keep, and of files, it is an error.
    samples[0] = f32::NAN;
    let mut piped = Spectrogram::of_stream(std::io::Cursor::new(wav(16_000, 1, &samples)), 80).expect("opens");
    assert!(piped.read_to(1).is_err());
    assert!(Spectrogram::open(&AudioSource::Bytes(wav(16_000, 1, &samples).into()), 80).is_err());
}

/// A long recording is read twice, and never whole in memory: its windows are those of a short one.
#[test]
fn long_recordings_are_streamed() {
    // 40 minutes of 80 bins are more than is kept.
    let minutes = 40;
    let mut long = Vec::new();
    let second: Vec<f32> = (0..SAMPLE_RATE).map(|place| 0.1 * ((place * place / 4000) as f32).sin()).collect();
    (0..minutes * 60).for_each(|_| long.extend_from_slice(&second));
    // The loudest moment is near the end.
    let last = long.len() - 20_000;
    long[last..last + 8000].iter_mut().for_each(|sample| *sample *= 9.0);
    let file = wav(SAMPLE_RATE, 1, &long);
    let mut streamed = Spectrogram::open(&AudioSource::Bytes(file.into()), 80).expect("opens");
    assert_eq!(streamed.length(), None);
    let mut whole = Spectrogram::of_samples(long, 80).expect("finite");
    let (mut found, mut expected) = (vec![0.0; 500 * 80], vec![0.0; 500 * 80]);
    for start in [0, 3000, 200_000] {
        streamed.forget_before(start);
        streamed.window(start, start + 500, Behind::Zero, &mut found).expect("there");
        whole.window(start, start + 500, Behind::Zero, &mut expected).expect("there");
        assert_eq!(found, expected, "from frame {start}");
    }
}
