//! Whole pipelines beside `transformers` and `timm`: from a configuration and an image to the tensor.

mod common;

use common::{bytes, cases, fixture, integer, text};
use serde_json::Value;
use vitreous_data::image::{
    Channels, ConfigError, Crop, Image, ImageError, Interpolation, Placement, Preprocess, Resize, Scratch, open,
};

fn read(peer: &str, config: &Value) -> Preprocess {
    let json = config.to_string();
    let read = match peer {
        "timm" => Preprocess::from_timm(json.as_bytes()),
        _ => Preprocess::from_hugging_face(json.as_bytes()),
    };
    read.unwrap_or_else(|error| panic!("{config}: {error}"))
}

/// Resizing is exact, so only the rounding of the normalisation may differ.
#[test]
fn tensors_equal_the_peers() {
    let mut scratch = Scratch::default();
    for case in cases("pipelines.json", 50) {
        let file = text(&case, "file");
        let preprocess = read(text(&case, "peer"), &case["config"]);
        let image = open(&fixture(&format!("pipelines/{}.png", text(&case, "input"))), preprocess.channels).unwrap();
        let shape: Vec<usize> = case["shape"].as_array().unwrap().iter().map(integer).collect();
        let [height, width] = preprocess.output_size_for(&image);
        assert_eq!(vec![preprocess.channels.count(), height, width], shape, "{file}");
        let mut ours = vec![f32::NAN; shape.iter().product()];
        preprocess.apply(&image, &mut scratch, &mut ours).unwrap();
        let expected = bytes(&format!("pipelines/{file}.f32"));
        let theirs: Vec<f32> = expected.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        assert_eq!(ours.len(), theirs.len(), "{file}");
        for (position, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
            let near = (ours - theirs).abs() <= 1e-6 * theirs.abs().max(1.0);
            assert!(near, "{file} at {position}: {ours} instead of {theirs}");
        }
    }
}

#[test]
fn what_is_written_reads_back_equal() {
    let mut written = 0;
    for case in cases("pipelines.json", 50) {
        let preprocess = read(text(&case, "peer"), &case["config"]);
        match preprocess.to_hugging_face() {
            Ok(json) => {
                assert_eq!(Preprocess::from_hugging_face(json.as_bytes()).as_ref(), Ok(&preprocess), "{json}");
                written += 1;
            }
            Err(error) => {
                let oblong = matches!(preprocess.resize, Resize::Cover(_) | Resize::Fit(_));
                assert!(oblong && matches!(error, ConfigError::Unsupported(_)), "{preprocess:?}: {error}");
            }
        }
    }
    assert!(written > 40);
}

#[test]
fn numbers_are_written_as_people_write_them() {
    let config = br#"{"image_processor_type": "BitImageProcessor", "image_mean": [0.485, 0.456, 0.406]}"#;
    let json = Preprocess::from_hugging_face(config).unwrap().to_hugging_face().unwrap();
    let short = json.split_whitespace().collect::<String>();
    for part in
        ["\"image_mean\":[0.485,0.456,0.406]", "\"shortest_edge\":224", "\"rescale_factor\":0.00392156862745098"]
    {
        assert!(short.contains(part), "{part} in {json}");
    }
}

#[test]
fn defaults_are_those_of_the_processor() {
    let read = |name: &str| {
        Preprocess::from_hugging_face(format!(r#"{{"image_processor_type": "{name}"}}"#).as_bytes()).unwrap()
    };
    let vit = Preprocess::from_hugging_face(b"{}").unwrap();
    assert_eq!(vit, read("ViTImageProcessorFast"));
    assert_eq!((vit.resize, vit.interpolation), (Resize::Exact([224, 224]), Interpolation::Bilinear));
    assert_eq!((vit.crop, vit.mean), (None, vec![0.5; 3]));
    let deit = read("DeiTFeatureExtractor");
    assert_eq!((deit.resize, deit.interpolation), (Resize::Exact([256, 256]), Interpolation::Bicubic));
    assert_eq!(deit.output_size(), Some([224, 224]));
    let bit = read("BitImageProcessor");
    assert_eq!((bit.resize, bit.output_size()), (Resize::ShorterSide(224), Some([224, 224])));
    assert_eq!(bit.mean, [0.48145466, 0.4578275, 0.40821073]);
    let nested =
        br#"{"image_processor": {"image_processor_type": "SiglipImageProcessor", "size": null, "do_resize": null}}"#;
    let siglip = Preprocess::from_hugging_face(nested).unwrap();
    assert_eq!((siglip.resize, siglip.interpolation), (Resize::Exact([224, 224]), Interpolation::Bicubic));
    let wrapped = br#"{"image_processor_type": "TimmWrapperImageProcessor", "pretrained_cfg": {"crop_pct": 1.0}}"#;
    assert_eq!(Preprocess::from_hugging_face(wrapped).unwrap().resize, Resize::ShorterSide(224));
}

#[test]
fn wrong_settings_are_named() {
    for (json, part) in [
        ("", "JSON"),
        ("[1]", "a list"),
        (r#"{"size": 0}"#, "`size`"),
        (r#"{"size": 1000000}"#, "8192"),
        (r#"{"size": {"height": 224}}"#, "a height and a width"),
        (r#"{"size": {"longest_edge": 224}}"#, "shortest_edge"),
        (r#"{"size": {"height": 224, "width": -1}}"#, "`size.width`"),
        (r#"{"size": [1, 2, 3]}"#, "a height and a width"),
        (r#"{"size": "large"}"#, "`size`"),
        (r#"{"do_center_crop": true, "crop_size": {"shortest_edge": 3}}"#, "`crop_size`"),
        (r#"{"resample": 9}"#, "`resample`"),
        (r#"{"image_mean": [0.5, 0.5]}"#, "1 or 3"),
        (r#"{"image_mean": []}"#, "`image_mean`"),
        (r#"{"image_mean": [0.5]}"#, "`image_std`"),
        (r#"{"image_std": [0.5, 0, 0.5]}"#, "zero"),
        (r#"{"image_std": "wide"}"#, "`image_std`"),
        (r#"{"do_resize": 1}"#, "`do_resize`"),
        (r#"{"do_pad": true}"#, "`do_pad`"),
        (r#"{"image_processor_type": "DetrImageProcessor"}"#, "Detr"),
        (r#"{"image_processor_type": 3}"#, "`image_processor_type`"),
        (r#"{"crop_placement": "left"}"#, "`crop_placement`"),
    ] {
        let error = Preprocess::from_hugging_face(json.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(part), "{json}: {error}");
    }
    for (json, part) in [
        (r#"{"input_size": [3, 224]}"#, "`input_size`"),
        (r#"{"input_size": [4, 224, 224]}"#, "`input_size`"),
        (r#"{"input_size": [3, 224, 1e9]}"#, "`input_size`"),
        (r#"{"crop_pct": -0.5}"#, "`crop_pct`"),
        (r#"{"crop_pct": 0.0001}"#, "`crop_pct`"),
        (r#"{"crop_mode": "left"}"#, "`crop_mode`"),
        (r#"{"interpolation": "random"}"#, "`interpolation`"),
        (r#"{"std": [0, 0, 0]}"#, "`std`"),
        (r#"{"input_size": [1, 28, 28]}"#, "`mean`"),
    ] {
        let error = Preprocess::from_timm(json.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(part), "{json}: {error}");
    }
}

#[test]
fn another_image_size_keeps_the_ratio() {
    let timm = Preprocess::from_timm(br#"{"crop_pct": 0.875}"#).unwrap();
    let larger = timm.clone().with_image_size([448, 448]);
    assert_eq!((larger.resize, larger.output_size()), (Resize::ShorterSide(512), Some([448, 448])));
    let oblong = timm.with_image_size([224, 448]);
    assert_eq!((oblong.resize, oblong.output_size()), (Resize::Cover([256, 512]), Some([224, 448])));
    let deit = Preprocess::from_hugging_face(br#"{"image_processor_type": "DeiTImageProcessor"}"#).unwrap();
    let deit = deit.with_image_size([112, 448]);
    assert_eq!((deit.resize, deit.output_size()), (Resize::Exact([128, 512]), Some([112, 448])));
    let vit = Preprocess::from_hugging_face(b"{}").unwrap().with_image_size([32, 48]);
    assert_eq!((vit.resize, vit.crop), (Resize::Exact([32, 48]), None));
    for open in [
        r#"{"do_resize": false}"#,
        r#"{"size": {"shortest_edge": 224}}"#,
        r#"{"size": {"max_height": 9, "max_width": 8}}"#,
    ] {
        let fixed = Preprocess::from_hugging_face(open.as_bytes()).unwrap();
        assert_eq!(fixed.output_size(), None);
        assert_eq!(fixed.with_image_size([20, 30]).output_size(), Some([20, 30]), "{open}");
    }
}

#[test]
fn the_default_is_timms() {
    let config = br#"{"input_size": [3, 224, 224], "crop_pct": 0.9, "interpolation": "bicubic",
        "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}"#;
    let default = Preprocess::default_for([224, 224], Channels::Rgb);
    assert_eq!(default, Preprocess::from_timm(config).unwrap());
    assert_eq!(default.resize, Resize::ShorterSide(248));
    assert_eq!(Preprocess::default_for([28, 28], Channels::Grey).mean, [0.5]);
}

#[test]
fn what_does_not_fit_is_refused() {
    let preprocess = Preprocess::from_hugging_face(br#"{"size": 4}"#).unwrap();
    let mut scratch = Scratch::default();
    let grey = Image::new(5, 5, Channels::Grey, vec![0; 25]).unwrap();
    let colour = Image::new(5, 5, Channels::Rgb, vec![0; 75]).unwrap();
    let error = preprocess.apply(&grey, &mut scratch, &mut [0.0; 48]).unwrap_err();
    assert!(matches!(error, ImageError::Channels { expected: 3, got: 1 }), "{error}");
    let error = preprocess.apply(&colour, &mut scratch, &mut [0.0; 47]).unwrap_err();
    assert!(matches!(error, ImageError::Output { expected: 48, got: 47 }), "{error}");
}

/// Such an image becomes 224 x 100 million on its way; only the middle of that is computed.
#[test]
fn an_extreme_image_takes_no_extreme_memory() {
    let image = Image::new(1_000_000, 1, Channels::Rgb, vec![200; 3_000_000]).unwrap();
    for interpolation in [Interpolation::Nearest, Interpolation::Bicubic] {
        let crop = Some(Crop { size: [64, 64], placement: Placement::HuggingFace, fill: vec![0; 3] });
        let preprocess = Preprocess {
            resize: Resize::ShorterSide(64),
            interpolation,
            crop,
            ..Preprocess::default_for([64, 64], Channels::Rgb)
        };
        let mut out = vec![0.0; 3 * 64 * 64];
        preprocess.apply(&image, &mut Scratch::default(), &mut out).unwrap();
        let expected = (200.0 / 255.0 - 0.5) / 0.5;
        assert!(out.iter().all(|value: &f32| (value - expected).abs() < 1e-5));
    }
}

#[test]
fn a_grey_model_may_come_with_a_configuration_for_colour() {
    let config = br#"{"image_processor_type": "ViTImageProcessor", "size": 4, "image_mean": [0.1, 0.2, 0.6], "image_std": [0.5, 0.25, 0.75]}"#;
    let grey = Preprocess::from_hugging_face(config).expect("reads").with_channels(Channels::Grey);
    let image = Image::new(4, 4, Channels::Grey, vec![51; 16]).expect("an image");
    let mut out = vec![0.0; 16];
    grey.apply(&image, &mut Scratch::default(), &mut out).expect("prepares");
    // (51 / 255 - 0.3) / 0.5
    assert!(out.iter().all(|value| (value + 0.2).abs() < 1e-6), "{out:?}");
    assert_eq!(grey.clone().with_channels(Channels::Grey), grey);
}
