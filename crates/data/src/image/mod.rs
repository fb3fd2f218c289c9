//! Images: decoding, preprocessing as a model's own configuration says, augmentation, and batches of them.
//!
//! A model only sees what it was trained on if its images are resized, cropped and normalised as they were then. The
//! peers are Pillow, `torchvision`, `timm` and `transformers`; each step here follows their source, and the tests compare
//! with their output.
//!
//! ```
//! use vitreous_data::image::{Channels, Image, Preprocess, Scratch};
//!
//! let config = br#"{"image_processor_type": "ViTImageProcessor", "size": 32}"#;
//! let preprocess = Preprocess::from_hugging_face(config)?;
//! let image = Image::new(64, 48, Channels::Rgb, vec![128; 64 * 48 * 3])?;
//! let [height, width] = preprocess.output_size_for(&image);
//! let mut tensor = vec![0.0; 3 * height * width];
//! preprocess.apply(&image, &mut Scratch::default(), &mut tensor)?;
//! assert_eq!([height, width], [32, 32]);
//! assert!((tensor[0] - (128.0 / 255.0 - 0.5) / 0.5).abs() < 1e-6);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod augment;
mod batches;
mod caption_batches;
mod decode;
mod error;
pub mod font;
mod format;
mod geometry;
mod gif;
mod jpeg;
mod preprocess;
mod raw;
mod resample;
mod view;

pub use batches::{ImageBatchOptions, ImageBatches, ImageForm, ImageTargets, Preparation};
pub use caption_batches::{CaptionBatches, CaptionTargets, CaptionTokens};
pub use decode::{Channels, Image, decode, decode_within, open};
pub use error::{ConfigError, ImageError};
pub use format::{FileFormat, IMAGE_EXTENSIONS, SkippedImages, has_image_extension};
pub use geometry::{Crop, Placement, Resize};
pub use preprocess::{Preprocess, Scratch};
pub use resample::{Interpolation, resize};
