//! The pictures beside a page.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use vitreous_data::image::Image;
use vitreous_explain::Rollout;
use vitreous_pages::chart::standalone;

use super::names::{Names, safe};
use crate::failure::Failure;
use vitreous_pages::explain::index::KIND as INDEX_KIND;
use vitreous_pages::explain::maps::{
    ROLLOUT_PERCENTILE, Scale, SheetRow, components, enlarged, overlay, sheet, with_grid,
};
use vitreous_pages::explain::packed::reader_rows;
use vitreous_pages::explain::weights::WeightPictures;
use vitreous_pages::explain::{ImagePage, class_name, distance_charts, mean_name};
use vitreous_pages::write;

/// The page of an image.
pub const PAGE: &str = "explain.html";
/// The page of all images.
pub const INDEX: &str = "index.html";
/// The numbers of an image.
pub const ARRAYS: &str = "arrays.npz";
const POSITIONS: &str = "positions.png";
const POSITION_TABLE: &str = "position-table.png";
const FILTERS: &str = "filters.png";
/// Patches coloured by their principal components, in the folder of an image.
const COMPONENTS: &str = "components.png";
const DISTANCE: &str = "distance.svg";
const ENTROPY: &str = "entropy.svg";
/// What lies beside the images' folders: none of them can be called so.
pub const OF_ALL: &[&str] = &[INDEX, POSITIONS, POSITION_TABLE, FILTERS, DISTANCE, ENTROPY];

/// Refuses a place where something lies that is no page of ours.
pub fn check_page(path: &Path, kind: &str) -> Result<(), Failure> {
    if path.exists() { Ok(write::check_place_or(path, kind, "give another --out DIR")?) } else { Ok(()) }
}

/// Refuses images that would be written over: they lie where what is drawn of the whole model goes.
pub fn refuse_overwriting<'a>(out: &Path, images: impl Iterator<Item = &'a Path>) -> Result<(), Failure> {
    let real = |path: &Path| path.canonicalize().ok();
    let places: Vec<PathBuf> = OF_ALL.iter().filter_map(|name| real(&out.join(name))).collect();
    for image in images {
        if real(image).is_some_and(|image| places.contains(&image)) {
            let (image, out) = (image.display(), out.display());
            let what =
                format!("{image} would be written over, since {out} is where pictures go; give another --out DIR");
            return Err(Failure::input(anyhow!(what)));
        }
    }
    Ok(())
}

/// Whether a picture is one that an explanation in this directory wrote: it lies beside a page of ours.
pub fn is_generated(out: &Path, image: &Path) -> bool {
    let (Ok(out), Ok(image)) = (out.canonicalize(), image.canonicalize()) else { return false };
    let folder = image.parent().filter(|folder| folder.parent() == Some(&out));
    folder.is_some_and(|folder| is_ours(&folder.join(PAGE)))
}

/// Removes what a run before this one left in an image's folder and this one may not write again: maps of other classes and
/// shares, and arrays. Only where the page is ours, and only files that are called as ours are.
pub fn remove_earlier(folder: &Path) -> Result<(), Failure> {
    if !is_ours(&folder.join(PAGE)) {
        return Ok(());
    }
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for name in entries.filter_map(|entry| entry.file_name().into_string().ok()) {
        let is_map = name.ends_with(".png") && ["rollout-", "relevance-"].iter().any(|start| name.starts_with(start));
        if is_map || name == ARRAYS || name == COMPONENTS {
            remove(&folder.join(name))?;
        }
    }
    Ok(())
}

/// Removes the page of all images that a run before this one wrote, and its charts: it would speak of other images and perhaps
/// of another model.
pub fn remove_index(folder: &Path) -> Result<(), Failure> {
    let index = folder.join(INDEX);
    let is_index =
        || std::fs::read_to_string(&index).is_ok_and(|page| page.contains(&format!("data-page=\"{INDEX_KIND}\"")));
    if is_ours(&index) && is_index() {
        [INDEX, DISTANCE, ENTROPY].iter().try_for_each(|name| remove(&folder.join(name)))?;
    }
    Ok(())
}

fn is_ours(page: &Path) -> bool {
    write::is_ours(page).unwrap_or(false)
}

fn remove(file: &Path) -> Result<(), Failure> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Failure::work(
            anyhow::Error::new(error)
                .context(format!("{}: it is of an earlier run and cannot be removed", file.display())),
        )),
        _ => Ok(()),
    }
}

/// Makes a folder, and those around it.
pub fn create_folder(folder: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("{}: this folder cannot be made", folder.display()))
        .map_err(Failure::Work)
}

/// The pictures of the model's weights.
pub fn write_weights(folder: &Path, weights: &WeightPictures) -> Result<(), Failure> {
    let filters = weights.filter_sheet().map_err(Failure::work)?;
    let pictures = [(POSITIONS, &weights.similarity), (POSITION_TABLE, &weights.table), (FILTERS, &filters)];
    for (name, picture) in pictures {
        if let Some(picture) = picture {
            write_png(&folder.join(name), picture)?;
        }
    }
    Ok(())
}

/// Charts of distance and entropy.
pub fn write_charts(folder: &Path, [distance, entropy]: &[String; 2]) -> Result<(), Failure> {
    write_text(&folder.join(DISTANCE), &standalone(distance))?;
    write_text(&folder.join(ENTROPY), &standalone(entropy))
}

/// All pictures of one image.
pub fn write_pictures(folder: &Path, page: &ImagePage) -> Result<(), Failure> {
    let explanation = page.explanation;
    let layout = &explanation.layout;
    let grid = layout.grid;
    let png = |name: &str, picture: Result<Image, vitreous_data::image::ImageError>| {
        write_png(&folder.join(name), &picture.map_err(Failure::work)?)
    };
    png("seen.png", with_grid(page.seen, grid))?;
    if let Some(first) = explanation.attention.first() {
        let names = first.heads.iter().map(|head| format!("head {head}"));
        let columns: Vec<String> = names.chain([mean_name(explanation, page.model)]).collect();
        let maps = |row: Vec<f32>| row[layout.prefix..].to_vec();
        let rows = explanation.attention.iter().map(|layer| SheetRow {
            name: format!("layer {}", layer.layer),
            maps: reader_rows(layer, layout).into_iter().map(maps).collect(),
        });
        png("attention.png", sheet(page.seen, grid, &columns, &rows.collect::<Vec<_>>()))?;
    }
    let large = enlarged(page.seen).map_err(Failure::work)?;
    for rollout in &explanation.rollout {
        png(
            &rollout_name(rollout),
            overlay(&large, grid, &rollout.patches, Scale::up_to(&rollout.patches, ROLLOUT_PERCENTILE)),
        )?;
    }
    let mut names = Names::default();
    for relevance in &explanation.relevance {
        let class =
            names.unique(safe(&relevance.class.map_or("features".to_string(), |_| class_name(page, relevance.class))));
        png(
            &format!("relevance-{class}.png"),
            overlay(&large, grid, &relevance.patches, Scale::of(&relevance.patches)),
        )?;
    }
    if let Some(features) = &explanation.patches {
        png(COMPONENTS, components(grid, &features.scores).and_then(|picture| enlarged(&picture)))?;
    }
    write_charts(folder, &distance_charts(explanation))?;
    write_text(&folder.join("flow.svg"), &standalone(page.flow))
}

/// `rollout-mean.png`, or `rollout-mean-0.9.png` where weights were left out.
fn rollout_name(Rollout { fusion, discard, .. }: &Rollout) -> String {
    match *discard {
        0.0 => format!("rollout-{}.png", fusion.name()),
        share => format!("rollout-{}-{share}.png", fusion.name()),
    }
}

fn write_png(path: &Path, picture: &Image) -> Result<(), Failure> {
    picture.save_png(path).with_context(|| path.display().to_string()).map_err(Failure::Work)
}

/// Writes a file, over what is there.
pub fn write_text(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).with_context(|| format!("{}: cannot be written", path.display())).map_err(Failure::Work)
}
