//! A TCP link between two processes that the test can delay, stall and cut.

use std::{net::Ipv4Addr, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// What the link does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    /// Passes everything on.
    Open,
    /// Passes everything on, each piece so much later.
    Delayed(Duration),
    /// Keeps connections and passes nothing on.
    Stalled,
    /// Has closed its connections and closes every new one.
    Cut,
}

/// A port that leads to another one. Dropped: cut for good.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    link: watch::Sender<Link>,
}

impl Proxy {
    pub(crate) async fn to(target: u16) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (link, seen) = watch::channel(Link::Open);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let link = seen.clone();
                if link.has_changed().is_err() {
                    return;
                }
                tokio::spawn(join(near, target, link));
            }
        });
        Proxy { port, link }
    }

    pub(crate) fn set(&self, link: Link) {
        self.link.send_replace(link);
    }
}

async fn join(near: TcpStream, target: u16, link: watch::Receiver<Link>) {
    let joined = async {
        let Ok(far) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).await else { return };
        let (near_in, near_out) = near.into_split();
        let (far_in, far_out) = far.into_split();
        tokio::select! {
            () = pass(near_in, far_out, link.clone()) => (),
            () = pass(far_in, near_out, link.clone()) => (),
        }
    };
    let mut cut = link.clone();
    tokio::select! {
        // Cut, or dropped.
        _ = cut.wait_for(|link| *link == Link::Cut) => (),
        () = joined => (),
    }
}

/// Everything that is read is written, sooner or later: a stall loses nothing.
async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut link: watch::Receiver<Link>,
) {
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        let Ok(now) = link.wait_for(|link| *link != Link::Stalled).await.map(|link| *link) else {
            return;
        };
        if let Link::Delayed(time) = now {
            tokio::time::sleep(time).await;
        }
        if to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}
