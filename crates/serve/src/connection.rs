//! Connections: TLS, limits of time, and an orderly end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::http::App;
use crate::labelled::Labelled;
use crate::options::{Limits, TlsFiles};
use crate::slow_writer::SlowWriter;

/// The most bytes of a request's head.
const MOST_HEAD: usize = 64 << 10;

/// What a connection needs.
#[derive(Clone)]
pub struct Connections {
    pub app: Arc<App>,
    pub router: Router,
    pub tls: Option<TlsAcceptor>,
    /// Changes when the server is to end.
    pub ending: watch::Receiver<bool>,
    /// Dropped by each connection when it is over.
    pub _open: mpsc::Sender<()>,
}

/// Reads a certificate and its key.
pub fn tls_acceptor(files: &TlsFiles) -> Result<TlsAcceptor, String> {
    let told = |path: &std::path::Path, what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
    let certificates: Result<Vec<CertificateDer>, _> =
        CertificateDer::pem_file_iter(&files.certificate).map_err(|error| told(&files.certificate, &error))?.collect();
    let certificates = certificates.map_err(|error| told(&files.certificate, &error))?;
    if certificates.is_empty() {
        return Err(told(&files.certificate, &"there is no certificate in this file; it is to be PEM"));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| told(&files.key, &error))?;
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(certificates, key);
    let mut config = config.map_err(|error| told(&files.certificate, &error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Accepts connections until the server is to end.
pub async fn accept(listener: TcpListener, connections: Connections) {
    let places = Arc::new(Semaphore::new(connections.app.limits.connections.max(1)));
    let mut ending = connections.ending.clone();
    loop {
        // Whoever comes beyond the limit waits in the system's queue.
        let place = tokio::select! {
            place = places.clone().acquire_owned() => place,
            _ = ending.changed() => return,
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = ending.changed() => return,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Such as too many open files: it gets better when others leave.
                connections.app.log.error(&format!("a connection could not be accepted: {error}"));
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let connections = connections.clone();
        tokio::spawn(async move {
            let count = &connections.app.metrics.connections;
            count.fetch_add(1, Ordering::Relaxed);
            serve(stream, &connections).await;
            count.fetch_sub(1, Ordering::Relaxed);
            drop(place);
        });
    }
}

async fn serve(stream: TcpStream, connections: &Connections) {
    let limits = connections.app.limits;
    // Pieces of a text are small, and are not to wait for others.
    let _ = stream.set_nodelay(true);
    notice_half_open(&stream, &limits);
    match &connections.tls {
        None => exchange(stream, connections).await,
        Some(tls) => {
            if let Ok(Ok(stream)) = tokio::time::timeout(limits.head, tls.accept(stream)).await {
                exchange(stream, connections).await;
            }
        }
    }
}

/// Of clients that are gone without a word the system is asked to find out.
fn notice_half_open(stream: &TcpStream, limits: &Limits) {
    let socket = socket2::SockRef::from(stream);
    let keepalive = socket2::TcpKeepalive::new().with_time(limits.stalled).with_interval(Duration::from_secs(5));
    let _ = socket.set_tcp_keepalive(&keepalive);
    #[cfg(target_os = "linux")]
    let _ = socket.set_tcp_user_timeout(Some(limits.stalled));
}

async fn exchange(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, connections: &Connections) {
    let Connections { app, router, ending, .. } = connections;
    // Told by the service that a request was understood.
    let has_requests = Arc::new(AtomicBool::new(false));
    let labels = app.clone();
    let label = move |status| format!("x-request-id: {}", labels.refused_unread(status));
    let stream = SlowWriter::new(stream, app.limits.stalled);
    let stream = TokioIo::new(Labelled::new(stream, has_requests.clone(), label));
    let mut builder = http1::Builder::new();
    // Also how long an idle connection is kept.
    builder.timer(TokioTimer::new()).header_read_timeout(app.limits.head).max_buf_size(MOST_HEAD);
    let service = TowerToHyperService::new(router.clone());
    let service = service_fn(move |request: Request<Incoming>| {
        has_requests.store(true, Ordering::Relaxed);
        service.call(request)
    });
    let mut connection = std::pin::pin!(builder.serve_connection(stream, service));
    let mut ending = ending.clone();
    tokio::select! {
        // What is wrong with a connection is its client's, which is gone.
        _ = connection.as_mut() => return,
        _ = ending.wait_for(|is_ending| *is_ending) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}
