//! Connections: how many, how slow, how long. HTTP/1.1, plain or TLS.

use std::{io, pin::pin, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use metrics::counter;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::stall::Stalling;
use crate::{
    config::{HttpConfig, limits},
    telemetry::name,
};

/// Wait after a failed accept. Out of file descriptors it fails again at once.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// How connections are served.
#[derive(Clone)]
pub struct Service {
    router: Router,
    tls: watch::Receiver<Option<TlsAcceptor>>,
    config: HttpConfig,
    stop: CancellationToken,
}

impl Service {
    /// A service of these routes. `stop` lets open requests end and takes no new ones. Each
    /// connection is encrypted by what `tls` holds when it comes.
    pub fn new(
        router: Router,
        tls: watch::Receiver<Option<TlsAcceptor>>,
        config: HttpConfig,
        stop: CancellationToken,
    ) -> Service {
        Service { router, tls, config, stop }
    }

    /// Serves until stopped, and until the requests that are open then have ended.
    pub async fn serve(self, listener: TcpListener) {
        let count_max = usize::try_from(self.config.connection_count_max).unwrap_or(usize::MAX);
        let refused = counter!(name::HTTP_REFUSED);
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                () = self.stop.cancelled() => break,
                Some(_) = connections.join_next() => continue,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok(_) if connections.len() >= count_max => refused.increment(1),
                Ok((stream, _)) => {
                    connections.spawn(self.clone().connection(stream));
                }
                Err(error) => {
                    warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
        drop(listener);
        while connections.join_next().await.is_some() {}
    }

    async fn connection(self, stream: TcpStream) {
        // Answers are small and waited for.
        drop(stream.set_nodelay(true));
        let stream = Stalling::new(stream, self.config.stall_deadline);
        let acceptor = self.tls.borrow().clone();
        let ended = match acceptor {
            None => Box::pin(self.speak(stream)).await,
            Some(acceptor) => {
                let shaken = acceptor.accept(stream);
                match tokio::time::timeout(limits::HTTP_HANDSHAKE_DEADLINE, shaken).await {
                    Ok(Ok(stream)) => Box::pin(self.speak(stream)).await,
                    Ok(Err(error)) => Err(error),
                    Err(_) => Err(io::ErrorKind::TimedOut.into()),
                }
            }
        };
        if let Err(error) = ended {
            debug!(%error, "connection ended");
        }
    }

    async fn speak<S>(self, stream: S) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(self.config.header_deadline)
            .max_headers(limits::HTTP_HEADER_COUNT_MAX)
            .max_buf_size(limits::HTTP_HEAD_BYTES_MAX);
        let service = TowerToHyperService::new(self.router);
        let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = self.stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        ended.map_err(io::Error::other)
    }
}
