//! `vitreous summary --html`.

mod common;

use std::fs;
use std::path::Path;

use common::vitreous;

fn page(model: &str, path: &Path) -> String {
    let run = vitreous(&["summary", model, "--html", &path.to_string_lossy()]).succeeded();
    assert!(run.stderr.contains("page.html written"), "{}", run.stderr);
    assert_eq!(run.stdout, "");
    fs::read_to_string(path).expect("the page")
}

#[test]
fn the_page_has_the_picture_and_all_that_the_text_says() {
    let place = tempfile::tempdir().expect("a directory");
    let page = page("vit_base_patch16_224", &place.path().join("page.html"));
    // Self-contained, small, of a known kind.
    assert!(!page.contains("http:") && !page.contains("https:") && !page.contains("src="), "{page}");
    assert!(page.len() < 100_000, "{}", page.len());
    assert!(page.contains("<body data-page=\"summary\">"));

    let text = vitreous(&["summary", "vit_base_patch16_224"]).succeeded().stdout;
    for name in
        ["patch_embedding", "position_embedding", "prefix_tokens", "norm1", "attention", "residual", "mlp", "head"]
    {
        assert!(text.contains(name) && page.contains(&format!("<td>{name}</td>")), "{name}");
    }
    // The sentences under the text's table, and its sums.
    for line in text.lines().skip_while(|line| !line.is_empty()).filter(|line| !line.is_empty()) {
        assert!(page.contains(line), "{line}");
    }
    assert!(page.contains("<td class=\"number\">86,567,656</td><td class=\"number\">35,264,229,688</td>"));
    assert!(page.contains("blocks.0 to blocks.10, each (11 times)") && page.contains("<td>blocks.11</td>"));
    // The picture, which needs no memory of the plan: all twelve are one.
    assert!(page.contains("\u{d7} 12</text>") && page.contains("12 heads of 64"));
}

#[test]
fn image_size_batch_and_json_are_as_asked() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("page.html");
    let file = path.to_string_lossy();
    let arguments = ["summary", "tiny_vit", "--json", "--image", "64x32", "--batch", "3", "--html", &file];
    let json = vitreous(&arguments).succeeded().json_lines().remove(0);
    assert_eq!(json["batch"], 3);
    let page = fs::read_to_string(&path).expect("the page");
    assert!(page.contains("64 \u{d7} 32 pixels") && page.contains(">3 \u{d7} 7</text>"), "{page}");
}

#[test]
fn only_pages_of_ours_are_replaced() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("page.html");
    page("vit_cifar", &path);
    assert!(page("vit_tiny_patch16_224", &path).contains("<h1>vit_tiny_patch16_224</h1>"));

    let other = place.path().join("thesis.html");
    fs::write(&other, "years of work").expect("written");
    vitreous(&["summary", "vit_cifar", "--html", &other.to_string_lossy()]).failed(2, &["not overwritten"]);
    assert_eq!(fs::read_to_string(&other).expect("still there"), "years of work");
    let nowhere = place.path().join("no/where.html");
    vitreous(&["summary", "vit_cifar", "--html", &nowhere.to_string_lossy()]).failed(2, &["there is no directory"]);
}

#[test]
fn a_translators_page_has_the_table_and_says_that_nothing_is_drawn() {
    let place = tempfile::tempdir().expect("a directory");
    let page = page("transformer_base", &place.path().join("page.html"));
    let text = vitreous(&["summary", "transformer_base"]).succeeded().stdout;
    for line in text.lines().skip_while(|line| !line.is_empty()).filter(|line| !line.is_empty()) {
        assert!(page.contains(line), "{line}");
    }
    for part in ["59,508,496", "encoder.0 to encoder.5, each (6 times)", "cross_attention", "is not drawn"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("http:") && !page.contains("https:") && !page.contains("src="));
}
