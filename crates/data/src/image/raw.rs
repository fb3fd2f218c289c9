//! The op that prepares raw batches of images on the device.

use vitreous_engine::ops::PrepareImages;
use vitreous_engine::{DType, Graph, Value};

use super::batches::{ImageBatchOptions, Preparation};
use super::preprocess::Preprocess;

impl ImageBatchOptions {
    /// Adds the inputs `pixels` and `draws` to a graph, and the op that prepares images from them. Its output is the `images` of a
    /// prepared batch, `[batch, channels, height, width]`.
    pub fn images_of_raw(&self, graph: &mut Graph) -> vitreous_engine::Result<Value> {
        let rest = self.rest();
        let pixels = graph.input("pixels", [self.batch, rest.pixel_words()], DType::I32)?;
        let draws = graph.input("draws", [self.batch, rest.draws_length()], DType::I32)?;
        let preprocess = self.preprocess();
        // Where the mean or deviation of a channel is missing, the constant's shape is wrong, and the graph says so.
        let channels = rest.channels.min(preprocess.mean.len()).min(preprocess.std.len());
        let table = (0..channels).flat_map(|channel| preprocess.table(channel)).collect();
        let table = graph.constant("numbers_of_bytes", [rest.channels, 256], table)?;
        graph.prepare_images(pixels, draws, table, rest)
    }

    /// What the op does.
    pub(crate) fn rest(&self) -> PrepareImages {
        let [channels, height, width] = self.shape;
        let (most_boxes, noise) = match &self.preparation {
            Preparation::Plain(_) => (0, false),
            Preparation::Augmented(augment) => augment.erasing(),
        };
        PrepareImages { channels, height, width, most_boxes, noise }
    }

    fn preprocess(&self) -> &Preprocess {
        match &self.preparation {
            Preparation::Plain(preprocess) => preprocess,
            Preparation::Augmented(augment) => augment.preprocess(),
        }
    }
}
