//! Receives the bytes of a file, resuming where the connection was interrupted.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use ureq::Agent;
use ureq::http::{HeaderMap, StatusCode, header};

use super::{DownloadError, DownloadOptions, Progress, RemoteFile};

/// More than any known file has (170 MB); a server that sends more must not fill the disk.
const MOST_BYTES: u64 = 1 << 30;
/// The longest pause between attempts.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Why an attempt ended.
enum Ended {
    /// The next attempt may succeed.
    Interrupted(String),
    /// The next attempt would fail, too.
    Failed(DownloadError),
}

/// Receives the rest of a file. Attempts that get further than any before do not count.
pub(super) fn receive(
    remote: &RemoteFile,
    file: &mut File,
    path: &Path,
    options: &DownloadOptions,
    tell: &mut dyn FnMut(Progress),
) -> Result<(), DownloadError> {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .timeout_resolve(Some(options.patience))
        .timeout_connect(Some(options.patience))
        .timeout_recv_response(Some(options.patience))
        .timeout_per_read(Some(options.patience))
        .build();
    let mut transfer = Transfer { agent: config.into(), address: options.address(remote), remote, file, path, tell };
    let (mut attempts, mut furthest, mut wait) = (0, 0, options.wait);
    loop {
        let reason = match transfer.attempt() {
            Ok(()) => return Ok(()),
            Err(Ended::Failed(error)) => return Err(error),
            Err(Ended::Interrupted(reason)) => reason,
        };
        let have = transfer.length()?;
        if have > furthest {
            (attempts, furthest, wait) = (0, have, options.wait);
        }
        attempts += 1;
        if attempts >= options.attempts {
            return Err(DownloadError::GivenUp { address: transfer.address, attempts, reason, have });
        }
        (transfer.tell)(Progress::Again { reason, wait });
        std::thread::sleep(wait);
        wait = (wait * 2).min(LONGEST_WAIT.max(options.wait));
    }
}

struct Transfer<'a> {
    agent: Agent,
    address: String,
    remote: &'a RemoteFile,
    file: &'a mut File,
    path: &'a Path,
    tell: &'a mut dyn FnMut(Progress),
}

impl Transfer<'_> {
    fn length(&self) -> Result<u64, DownloadError> {
        self.file.metadata().map(|metadata| metadata.len()).map_err(|error| DownloadError::io(self.path, error))
    }

    /// Discards what was received.
    fn start_over(&mut self) -> Result<u64, Ended> {
        if self.length().map_err(Ended::Failed)? > 0 {
            self.file.set_len(0).map_err(|error| Ended::Failed(DownloadError::io(self.path, error)))?;
        }
        Ok(0)
    }

    fn attempt(&mut self) -> Result<(), Ended> {
        let mut have = self.length().map_err(Ended::Failed)?;
        let mut request = self.agent.get(&self.address).header(header::ACCEPT_ENCODING, "identity");
        if have > 0 {
            request = request.header(header::RANGE, format!("bytes={have}-"));
        }
        let response = request.call().map_err(|error| match error {
            ureq::Error::BadUri(_) | ureq::Error::Http(_) | ureq::Error::InvalidProxyUrl => {
                Ended::Failed(DownloadError::io(Path::new(&self.address), error.into_io()))
            }
            error => Ended::Interrupted(error.to_string()),
        })?;
        match response.status() {
            StatusCode::OK => have = self.start_over()?,
            StatusCode::PARTIAL_CONTENT => {
                if range_start(response.headers()) != Some(have) {
                    self.start_over()?;
                    return Err(Ended::Interrupted("the server sent another range than was requested".to_string()));
                }
            }
            // All bytes were received already, or more than there are.
            StatusCode::RANGE_NOT_SATISFIABLE if have > 0 => {
                if range_total(response.headers()) == Some(have) {
                    return Ok(());
                }
                self.start_over()?;
                return Err(Ended::Interrupted("the partial file does not match the server's file".to_string()));
            }
            status if status.is_server_error() || matches!(status.as_u16(), 408 | 425 | 429) => {
                return Err(Ended::Interrupted(format!("the server answered {status}")));
            }
            status => {
                let (address, status) = (self.address.clone(), status.as_u16());
                return Err(Ended::Failed(DownloadError::Refused { address, status }));
            }
        }
        let body = response.into_body();
        let total = body.content_length().map(|left| have.saturating_add(left));
        self.check_length(total.unwrap_or(0))?;
        (self.tell)(Progress::Begun { file: self.remote.file_name().to_string(), have, total });
        self.copy(body.into_reader(), have, total)
    }

    fn copy(&mut self, mut body: impl Read, mut have: u64, total: Option<u64>) -> Result<(), Ended> {
        let failed = |path: &Path, error| Ended::Failed(DownloadError::io(path, error));
        self.file.seek(SeekFrom::Start(have)).map_err(|error| failed(self.path, error))?;
        let mut buffer = vec![0; 1 << 16];
        loop {
            let count = match body.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) => return Err(Ended::Interrupted(error.to_string())),
            };
            self.file.write_all(&buffer[..count]).map_err(|error| failed(self.path, error))?;
            have += count as u64;
            self.check_length(have)?;
            (self.tell)(Progress::Received(have));
        }
        match total {
            Some(total) if have != total => {
                Err(Ended::Interrupted(format!("the connection ended after {have} of {total} bytes")))
            }
            _ => Ok(()),
        }
    }

    fn check_length(&self, bytes: u64) -> Result<(), Ended> {
        if bytes <= MOST_BYTES {
            return Ok(());
        }
        Err(Ended::Failed(DownloadError::TooLong { address: self.address.clone(), most: MOST_BYTES }))
    }
}

/// The position of the first byte in `bytes 100-199/200`.
fn range_start(headers: &HeaderMap) -> Option<u64> {
    let (start, _) = content_range(headers)?.0.split_once('-')?;
    start.parse().ok()
}

/// The length of the file in `bytes */200`.
fn range_total(headers: &HeaderMap) -> Option<u64> {
    content_range(headers)?.1.parse().ok()
}

fn content_range(headers: &HeaderMap) -> Option<(&str, &str)> {
    headers.get(header::CONTENT_RANGE)?.to_str().ok()?.trim().strip_prefix("bytes ")?.split_once('/')
}
