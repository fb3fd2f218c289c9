//! Well-known data sets. Addresses and checksums are those of the data sets' own pages and of `torchvision`.

use crate::dataset::FASHION;

/// A well-known data set.
#[derive(Debug, Clone)]
pub struct KnownDataset {
    /// What it is called on the command line.
    pub name: String,
    /// Its files.
    pub files: Vec<RemoteFile>,
    /// Names of the classes, to be written to `classes.txt` where the files do not have them.
    pub classes: Vec<String>,
}

/// A file to download.
#[derive(Debug, Clone)]
pub struct RemoteFile {
    /// Its address.
    pub address: String,
    /// Its MD5 checksum, in hexadecimal.
    pub md5: String,
    /// What is in it, if it is an archive.
    pub archive: Option<Archive>,
}

/// What is in a `.tar.gz`.
#[derive(Debug, Clone)]
pub struct Archive {
    /// Its only folder.
    pub folder: String,
    /// Files of that folder without which it is incomplete.
    pub files: Vec<String>,
}

/// The names that [`KnownDataset::named`] knows.
pub const KNOWN_NAMES: [&str; 4] = ["cifar10", "cifar100", "fashion-mnist", "mnist"];

const CIFAR: &str = "https://www.cs.toronto.edu/~kriz";
const FASHION_MNIST: &str = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com";
/// The mirror that `torchvision` uses: the original site asks for a password.
const MNIST: &str = "https://ossci-datasets.s3.amazonaws.com/mnist";

impl KnownDataset {
    /// The data set of this name.
    pub fn named(name: &str) -> Option<KnownDataset> {
        let (files, classes): (Vec<RemoteFile>, &[&str]) = match name {
            "cifar10" => (vec![cifar10()], &[]),
            "cifar100" => (vec![cifar100()], &[]),
            "fashion-mnist" => (
                idx_files(
                    FASHION_MNIST,
                    [
                        "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                        "25c81989df183df01b3e8a0aad5dffbe",
                        "bef4ecab320f06d8554ea6380940ec79",
                        "bb300cfdad3c16e7a12a480ee83cd310",
                    ],
                ),
                &FASHION,
            ),
            "mnist" => (
                idx_files(
                    MNIST,
                    [
                        "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                        "d53e105ee54ea40749a09fcbcd1e9432",
                        "9fb629c4189551a2d022fa330f9573f3",
                        "ec29112dd5afa0611ce80d1b7f02629c",
                    ],
                ),
                &[],
            ),
            _ => return None,
        };
        let classes = classes.iter().map(|class| class.to_string()).collect();
        Some(KnownDataset { name: name.to_string(), files, classes })
    }
}

impl RemoteFile {
    /// The last part of the address.
    pub fn file_name(&self) -> &str {
        self.address.rsplit('/').next().unwrap_or_default()
    }
}

fn cifar10() -> RemoteFile {
    let batches = (1..=5).map(|batch| format!("data_batch_{batch}.bin"));
    let files = batches.chain(["test_batch.bin", "batches.meta.txt"].map(str::to_string)).collect();
    RemoteFile {
        address: format!("{CIFAR}/cifar-10-binary.tar.gz"),
        md5: "c32a1d4ab5d03f1284b67883e8d87530".to_string(),
        archive: Some(Archive { folder: "cifar-10-batches-bin".to_string(), files }),
    }
}

fn cifar100() -> RemoteFile {
    let files = ["train.bin", "test.bin", "fine_label_names.txt", "coarse_label_names.txt"];
    RemoteFile {
        address: format!("{CIFAR}/cifar-100-binary.tar.gz"),
        md5: "03b5dce01913d631647c71ecec9e9cb8".to_string(),
        archive: Some(Archive { folder: "cifar-100-binary".to_string(), files: files.map(str::to_string).to_vec() }),
    }
}

fn idx_files(base: &str, sums: [&str; 4]) -> Vec<RemoteFile> {
    let names =
        ["train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"];
    let remote = |(name, md5): (&str, &str)| RemoteFile {
        address: format!("{base}/{name}.gz"),
        md5: md5.to_string(),
        archive: None,
    };
    names.into_iter().zip(sums).map(remote).collect()
}
