//! Settings that cannot be are refused, and the message names them.

use super::super::{Augment, AugmentSettings, CropKind, Mixer};
use super::plain;
use crate::image::decode::Channels;
use crate::image::geometry::Resize;

fn refusal(change: impl FnOnce(&mut AugmentSettings)) -> String {
    let mut settings = AugmentSettings::default();
    change(&mut settings);
    let augment = Augment::new(&settings, &plain([32, 32], Channels::Rgb)).map(|_| ());
    let mixer = Mixer::new(&settings).map(|_| ());
    augment.and(mixer).map_err(|error| error.to_string()).unwrap_err()
}

#[test]
fn each_setting_is_refused_by_its_name() {
    let refusals = [
        ("flip", refusal(|settings| settings.flip = 1.5)),
        ("vertical_flip", refusal(|settings| settings.vertical_flip = -0.1)),
        ("color_jitter", refusal(|settings| settings.color_jitter = 2.0)),
        ("grey", refusal(|settings| settings.grey = f64::NAN)),
        ("blur", refusal(|settings| settings.blur = 7.0)),
        ("erase", refusal(|settings| settings.erase = -1.0)),
        ("erase_count", refusal(|settings| settings.erase_count = 0)),
        ("scale", refusal(|settings| settings.scale = [0.5, 0.1])),
        ("scale", refusal(|settings| settings.scale = [0.0, 0.1])),
        ("scale", refusal(|settings| settings.scale = [0.5, 1.1])),
        ("ratio", refusal(|settings| settings.ratio = [2.0, 1.0])),
        ("ratio", refusal(|settings| settings.ratio = [f64::NAN, 1.0])),
        ("padding", refusal(|settings| (settings.crop, settings.padding) = (CropKind::Padded, 33))),
        ("mixup", refusal(|settings| settings.mixup = -0.2)),
        ("cutmix", refusal(|settings| settings.cutmix = f64::INFINITY)),
        ("mix_probability", refusal(|settings| settings.mix_probability = 1.01)),
        ("mix_switch", refusal(|settings| settings.mix_switch = -0.01)),
        ("policy", refusal(|settings| settings.policy = "augmix-m3".to_string())),
    ];
    for (key, message) in refusals {
        assert!(message.starts_with(&format!("`{key}`: it must be")), "{key}: {message}");
    }
}

#[test]
fn policies_that_cannot_be_say_what_is_known() {
    for (policy, why) in [
        ("rand-m9-w0", "timm no longer knows w0; tweights"),
        ("rand-x3", "the part \"x3\" is not known"),
        ("rand-", "the part \"\" is not known"),
        ("rand-m", "\"m\" needs a number"),
        ("rand-m9.5", "needs a whole number"),
        ("rand-m-3", "needs a number"),
        ("rand-p1.5", "more than 1"),
        ("rand-m9-m8", "m is given twice"),
        ("rand-tother", "no set of operations \"other\""),
        ("rand-tweights-n16", "only 15 operations"),
        ("rand-n1000", "up to 100"),
        ("RAND-m9", "it must be"),
        ("3a-m9", "it must be"),
    ] {
        let message = refusal(|settings| settings.policy = policy.to_string());
        assert!(message.contains(why) && message.contains("rand-m9-mstd0.5-inc1"), "{policy}: {message}");
    }
}

#[test]
fn policies_of_timms_papers_are_read() {
    let preprocess = plain([32, 32], Channels::Rgb);
    for policy in [
        "",
        "3a",
        "rand",
        "rand-m9-mstd0.5-inc1",
        "rand-m15-n2-mmax20",
        "rand-mstdinf-tweights",
        "rand-n3-t3aw",
        "rand-t3a",
    ] {
        let settings = AugmentSettings { policy: policy.to_string(), ..AugmentSettings::default() };
        assert!(Augment::new(&settings, &preprocess).is_ok(), "{policy}");
    }
}

#[test]
fn an_open_size_is_refused() {
    let mut preprocess = plain([32, 32], Channels::Rgb);
    preprocess.resize = Resize::ShorterSide(32);
    let error = Augment::new(&AugmentSettings::default(), &preprocess).unwrap_err();
    assert!(error.to_string().contains("fixed size"), "{error}");
}

#[test]
fn nothing_to_mix_is_no_mixer() {
    assert!(Mixer::new(&AugmentSettings::default()).unwrap().is_none());
    let never = AugmentSettings { mixup: 1.0, mix_probability: 0.0, ..AugmentSettings::default() };
    assert!(Mixer::new(&never).unwrap().is_none());
}
