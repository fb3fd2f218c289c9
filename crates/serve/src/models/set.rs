//! The set of models, swapped as a whole: whoever has one of the old set keeps it until its request is answered.

use std::sync::{Arc, PoisonError, RwLock};

use super::{Served, Surroundings};
use crate::options::NamedModel;

/// Models by name, in the order in which they were named.
#[derive(Default)]
pub struct ModelSet {
    models: Vec<Arc<Served>>,
}

/// A model that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("{name}: {error}")]
pub struct LoadError {
    /// Its name.
    pub name: String,
    /// Why.
    pub error: Box<vitreous_runtime::Error>,
}

impl ModelSet {
    /// Of these.
    pub fn new(models: Vec<Arc<Served>>) -> ModelSet {
        ModelSet { models }
    }

    /// Opens all that were named, or none. Those that were only found, in runs, are left out where they cannot be opened or their name is
    /// taken.
    pub fn open(named: &[NamedModel], found: &[NamedModel], around: &Surroundings) -> Result<ModelSet, LoadError> {
        let failed = |one: &NamedModel, error| LoadError { name: one.name.clone(), error: Box::new(error) };
        let mut models = Vec::new();
        for one in named {
            let served = Served::open(one, around).map_err(|error| failed(one, error))?;
            models.push(Arc::new(served));
        }
        for one in found {
            if models.iter().any(|model| model.name == one.name) {
                continue;
            }
            match Served::open(one, around) {
                Ok(served) => models.push(Arc::new(served)),
                Err(error) => around.log.error(&format!("the model of the run {} is not served: {error}", one.name)),
            }
        }
        Ok(ModelSet { models })
    }

    /// The model of a name.
    pub fn get(&self, name: &str) -> Option<&Arc<Served>> {
        self.models.iter().find(|model| model.name == name)
    }

    /// All.
    pub fn all(&self) -> &[Arc<Served>] {
        &self.models
    }
}

/// The set that is served now; `None` until the first is loaded.
#[derive(Default)]
pub struct Models(RwLock<Option<Arc<ModelSet>>>);

impl Models {
    /// The set that is served now.
    pub fn now(&self) -> Option<Arc<ModelSet>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on this one is served. The old one's models end when the last request to them is answered.
    pub fn swap(&self, new: ModelSet) {
        let old = self.0.write().unwrap_or_else(PoisonError::into_inner).replace(Arc::new(new));
        drop(old);
    }
}
