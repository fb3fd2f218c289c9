//! Images in formats that cannot be decoded: never silently "no images".

use super::{opened, png, refused, says, tar_of, write};

#[test]
fn tiff_images_are_samples() {
    let folder = tempfile::tempdir().expect("a folder");
    for (class, name) in [("a", "0.tif"), ("a", "1.TIFF"), ("b", "0.png")] {
        write(&folder.path().join(class).join(name), png(1));
    }
    let splits = opened(folder.path());
    assert_eq!(splits.train.len() + splits.validation.len(), 3);
    assert!(!splits.notes.join("; ").contains("skipped"), "{:?}", splits.notes);
}

#[test]
fn skipped_formats_are_counted_in_one_note() {
    let folder = tempfile::tempdir().expect("a folder");
    for path in ["train/a/0.png", "train/b/0.png", "val/a/0.png"] {
        write(&folder.path().join(path), png(1));
    }
    for path in ["train/a/1.heic", "train/b/deep/2.HEIC", "val/a/3.avif", "train/4.heic"] {
        write(&folder.path().join(path), "content");
    }
    let splits = opened(folder.path());
    let notes: Vec<&String> = splits.notes.iter().filter(|note| note.contains("skipped")).collect();
    assert_eq!(notes.len(), 1, "{notes:?}");
    says(notes[0], &["3 HEIC images and 1 AVIF image were skipped", "not supported", "`magick 4.heic 4.jpg`"]);
}

#[test]
fn a_folder_of_nothing_else_is_refused_with_the_remedy() {
    let folder = tempfile::tempdir().expect("a folder");
    for path in ["a/0.heic", "a/1.heic", "b/0.heic"] {
        write(&folder.path().join(path), "content");
    }
    says(&refused(folder.path()), &["no images in supported formats", "3 HEIC images were skipped", "magick"]);
    // The same without folders of classes, and of one file.
    says(&refused(&folder.path().join("a")), &["2 HEIC images were skipped"]);
    says(&refused(&folder.path().join("a/0.heic")), &["1 HEIC image was skipped"]);
}

#[test]
fn skipped_formats_in_archives_are_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.tar");
    let files =
        [("0.png", png(1)), ("0.cls", "0".into()), ("1.heic", vec![1]), ("1.cls", "1".into()), ("2.heic", vec![1])];
    write(&path, tar_of(&files));
    says(&opened(&path).notes.join("; "), &["2 HEIC images were skipped", "2 samples have no image"]);
    write(&path, tar_of(&files[2..4]));
    says(&refused(&path), &["no sample with an image", "1 HEIC image was skipped"]);
}
