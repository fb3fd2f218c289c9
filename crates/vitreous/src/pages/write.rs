//! stub
use crate::failure::Failure;
pub fn write_page(path: &std::path::Path, html: &str) -> Result<(), Failure> {
    std::fs::write(path, html).map_err(Failure::work)
}
