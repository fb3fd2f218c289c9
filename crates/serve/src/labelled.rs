//! A connection on which answers that hyper gives by itself, to what is no request, have an id and a line in the log like all others.
//!
//! Only the first answer of a connection can be told to be hyper's, by that no request was understood before.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How every answer begins.
const START: &[u8] = b"HTTP/1.1 ";

/// A stream that adds a line to the head of an answer that was written before any request was understood.
pub struct Labelled<S> {
    stream: S,
    /// Whether a request was understood.
    has_requests: Arc<AtomicBool>,
    /// Told the status of such an answer; gives the line, without its end.
    label: Box<dyn FnMut(u16) -> String + Send>,
    /// What of a labelled answer is not written yet.
    left: Vec<u8>,
}

impl<S: AsyncWrite + Unpin> Labelled<S> {
    /// A stream with labels.
    pub fn new(
        stream: S,
        has_requests: Arc<AtomicBool>,
        label: impl FnMut(u16) -> String + Send + 'static,
    ) -> Labelled<S> {
        Labelled { stream, has_requests, label: Box::new(label), left: Vec::new() }
    }

    /// An answer of hyper's with its label.
    fn labelled(&mut self, answer: &[u8]) -> Option<Vec<u8>> {
        if self.has_requests.load(Ordering::Relaxed) {
            return None;
        }
        let status = std::str::from_utf8(answer.strip_prefix(START)?.get(..3)?).ok()?.parse().ok()?;
        let first_line = answer.windows(2).position(|pair| pair == b"\r\n")?;
        let label = (self.label)(status);
        Some([&answer[..first_line], b"\r\n", label.as_bytes(), &answer[first_line..]].concat())
    }

    fn write_left(&mut self, context: &mut Context) -> Poll<io::Result<()>> {
        while !self.left.is_empty() {
            let count = ready!(Pin::new(&mut self.stream).poll_write(context, &self.left))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.left.drain(..count);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Labelled<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context, buffer: &mut ReadBuf) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Labelled<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.write_left(context))?;
        match self.labelled(bytes) {
            None => Pin::new(&mut self.stream).poll_write(context, bytes),
            Some(labelled) => {
                self.left = labelled;
                // What cannot be written now is written when the stream is flushed or closed.
                let _ = self.write_left(context)?;
                Poll::Ready(Ok(bytes.len()))
            }
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context,
        parts: &[io::IoSlice],
    ) -> Poll<io::Result<usize>> {
        if self.has_requests.load(Ordering::Relaxed) {
            ready!(self.write_left(context))?;
            return Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        }
        let first = parts.iter().find(|part| !part.is_empty());
        self.poll_write(context, first.map_or(&[][..], |part| &part[..]))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<io::Result<()>> {
        ready!(self.write_left(context))?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<io::Result<()>> {
        ready!(self.write_left(context))?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
