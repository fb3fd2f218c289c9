//! Streams and events: what runs in which order on the device.

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use cudarc::driver::result as driver;
use cudarc::driver::sys;

use super::device::failed;
use crate::error::{Error, Result};

/// Work that is done in order.
pub(super) struct Stream {
    handle: sys::CUstream,
}

// SAFETY: a stream may be used by any thread, one at a time.
unsafe impl Send for Stream {}

impl Stream {
    /// A stream of the calling thread's device.
    pub fn new() -> Result<Stream> {
        let handle = driver::stream::create(driver::stream::StreamKind::NonBlocking);
        Ok(Stream { handle: handle.map_err(|error| failed("making a stream", error))? })
    }

    /// The same, whose kernels start before those of others that wait for a place.
    pub fn urgent() -> Result<Stream> {
        let of = |error| failed("making a stream", error);
        let (_, most_urgent) = driver::stream::get_priority_range().map_err(of)?;
        let handle = driver::stream::create_with_priority(driver::stream::StreamKind::NonBlocking, most_urgent);
        Ok(Stream { handle: handle.map_err(of)? })
    }

    pub fn handle(&self) -> sys::CUstream {
        self.handle
    }

    /// Waits until all that was asked of it is done.
    pub fn wait(&self) -> Result<()> {
        // SAFETY: it is alive.
        unsafe { driver::stream::synchronize(self.handle) }.map_err(|error| failed("running", error))
    }

    /// What is asked of this stream from now on waits for what the event stands for.
    pub fn wait_for(&self, event: &Event) -> Result<()> {
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: both are alive.
        unsafe { driver::stream::wait_event(self.handle, event.handle, flags) }
            .map_err(|error| failed("ordering streams", error))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: created in `new`, destroyed once.
        let _ = unsafe { driver::stream::destroy(self.handle) };
    }
}

/// A moment in a stream. Before it is recorded it counts as reached.
pub(super) struct Event {
    handle: sys::CUevent,
}

// SAFETY: an event may be used by any thread, and by several at once.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// An event that orders and is waited for.
    pub fn new() -> Result<Event> {
        Event::with(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
    }

    /// An event that is also a time.
    pub fn timed() -> Result<Event> {
        Event::with(sys::CUevent_flags::CU_EVENT_DEFAULT)
    }

    fn with(flags: sys::CUevent_flags) -> Result<Event> {
        Ok(Event { handle: driver::event::create(flags).map_err(|error| failed("making an event", error))? })
    }

    /// From now on it stands for all that was asked of the stream so far.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        // SAFETY: both are alive.
        unsafe { driver::event::record(self.handle, stream.handle) }
            .map_err(|error| failed("recording an event", error))
    }

    /// Whether it is reached.
    pub fn is_reached(&self) -> bool {
        // SAFETY: it is alive.
        unsafe { driver::event::query(self.handle) }.is_ok()
    }

    /// Waits until it is reached.
    pub fn wait(&self) -> Result<()> {
        // SAFETY: it is alive.
        unsafe { driver::event::synchronize(self.handle) }.map_err(|error| failed("running", error))
    }

    /// Seconds from another timed event, both reached.
    pub fn seconds_since(&self, before: &Event) -> Result<f64> {
        let mut milliseconds = 0.0;
        // SAFETY: both are alive, and the driver writes one number.
        let result = unsafe { elapsed_time()?(&mut milliseconds, before.handle, self.handle) };
        result.result().map_err(|error| failed("timing", error))?;
        Ok(f64::from(milliseconds) / 1e3)
    }
}

/// What the driver calls the time between two events.
type ElapsedTime = unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> sys::CUresult;

/// Since CUDA 12.8 there is a second version of it, the only one that the bindings know; drivers of before have the first alone.
fn elapsed_time() -> Result<ElapsedTime> {
    // SAFETY: there is a driver, which made the events; both versions are declared like this.
    let find = |name: &[u8]| unsafe { sys::culib().get::<ElapsedTime>(name).map(|function| *function) };
    find(b"cuEventElapsedTime_v2\0").or_else(|_| find(b"cuEventElapsedTime\0")).map_err(|_| {
        Error::Machine("the driver cannot tell how long a kernel took; install a newer driver".to_string())
    })
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: created in `with`, destroyed once.
        let _ = unsafe { driver::event::destroy(self.handle) };
    }
}

/// While a step is recorded, nothing else of this process may take or give back memory or code of the device: it would spoil the record.
static RECORDING: RwLock<()> = RwLock::new(());

/// To be held while memory or code is taken or given back.
pub(super) fn while_nothing_is_recorded() -> RwLockReadGuard<'static, ()> {
    RECORDING.read().unwrap_or_else(PoisonError::into_inner)
}

/// Work that was recorded once and is started as a whole.
pub(super) struct Recorded {
    graph: sys::CUgraph,
    executable: sys::CUgraphExec,
}

// SAFETY: as of a stream.
unsafe impl Send for Recorded {}

impl Recorded {
    /// Records what `work` asks of the stream, without doing it.
    pub fn new(stream: &Stream, work: impl FnOnce() -> Result<()>) -> Result<Recorded> {
        let of = |error| failed("recording a step", error);
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        let _alone = RECORDING.write().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the stream is alive.
        unsafe { driver::stream::begin_capture(stream.handle, mode) }.map_err(of)?;
        let asked = work();
        // SAFETY: as above; a capture that failed is ended, too.
        let graph = unsafe { driver::stream::end_capture(stream.handle) };
        asked?;
        let graph = graph.map_err(of)?;
        let mut executable = std::ptr::null_mut();
        // SAFETY: the graph is alive.
        let made = unsafe { sys::cuGraphInstantiateWithFlags(&mut executable, graph, 0) }.result();
        if let Err(error) = made {
            // SAFETY: the graph is alive, and is not used any more.
            let _ = unsafe { driver::graph::destroy(graph) };
            return Err(of(error));
        }
        Ok(Recorded { graph, executable })
    }

    /// Starts it.
    pub fn start(&self, stream: &Stream) -> Result<()> {
        // SAFETY: both are alive.
        unsafe { driver::graph::launch(self.executable, stream.handle) }
            .map_err(|error| failed("starting a step", error))
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        // SAFETY: made in `new`, destroyed once.
        unsafe {
            let _ = driver::graph::exec_destroy(self.executable);
            let _ = driver::graph::destroy(self.graph);
        }
    }
}
