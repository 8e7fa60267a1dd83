//! Ports that come and go while flowrail runs: sockets to the workers, then the program to the interface; and back.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::config::Config;
use super::quiesce::{Crew, LIMIT};
use super::setup::{Door, OpenPort, Opened, SetupError, open_port};
use crate::ids::{IfIndex, PortId};
use crate::worker::command::Command;

/// Pause between two looks at a worker.
const PAUSE: Duration = Duration::from_micros(50);

/// The ports that are open, by number, and the ways to the workers.
#[derive(Clone)]
pub struct Ports {
    open: Arc<Mutex<Vec<Option<OpenPort>>>>,
    doors: Arc<[Door]>,
}

/// Why a port did not come.
#[derive(Debug, thiserror::Error)]
pub enum PortsError {
    /// It could not be opened.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// A worker does not do what it is asked to.
    #[error("worker {0} does not take the port; this is a bug, please report it with the log")]
    Stuck(usize),
}

impl Ports {
    /// What was opened at the start.
    #[must_use]
    pub fn new(open: Vec<OpenPort>, doors: Vec<Door>) -> Self {
        Self { open: Arc::new(Mutex::new(open.into_iter().map(Some).collect())), doors: doors.into() }
    }

    /// Looks at the open ports, with their numbers.
    pub fn each<T>(&self, look: impl FnMut((PortId, &OpenPort)) -> T) -> Vec<T> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let ports = (0..).map(PortId).zip(open.iter());
        ports.filter_map(|(id, port)| Some((id, port.as_ref()?))).map(look).collect()
    }

    /// Interface of an open port.
    #[must_use]
    pub fn ifindex(&self, id: PortId) -> Option<IfIndex> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.get(usize::from(id.0))?.as_ref().map(|port| port.ifindex)
    }

    /// Detaches every program, so that nothing new arrives. The sockets close with their workers.
    pub fn detach_all(&self) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Opens ports of a configuration, all or none: sockets at the workers first, so that a frame finds one. Blocks.
    ///
    /// # Errors
    /// When one cannot be opened; then none is.
    pub fn open(&self, crew: &Crew, config: &Config, ports: &[(PortId, IfIndex)]) -> Result<(), PortsError> {
        let opened =
            ports.iter().map(|(id, ifindex)| Ok((*id, open_port(config, *id, *ifindex, &self.doors)?)));
        let opened: Vec<(PortId, Opened)> = opened.collect::<Result<_, SetupError>>()?;
        let mut done = Vec::new();
        for (id, Opened { mut port, commands }) in opened {
            done.push(id);
            let attached = match self.command(crew, commands) {
                Ok(()) => port.attach(config).map_err(PortsError::Setup),
                Err(stuck) => Err(stuck),
            };
            self.set(id, Some(port));
            if let Err(error) = attached {
                self.close(crew, &done);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Closes ports: the program first, so that nothing new arrives. Returns workers that are stuck. Blocks.
    pub fn close(&self, crew: &Crew, ports: &[PortId]) -> Vec<usize> {
        let mut stuck = Vec::new();
        for id in ports {
            drop(self.set(*id, None));
            let commands = self.doors.iter().map(|_| Command::Close(*id)).collect();
            if let Err(PortsError::Stuck(worker)) = self.command(crew, commands) {
                stuck.push(worker);
            }
        }
        stuck
    }

    fn set(&self, id: PortId, port: Option<OpenPort>) -> Option<OpenPort> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let index = usize::from(id.0);
        if open.len() <= index {
            open.resize_with(index + 1, || None);
        }
        open.get_mut(index).and_then(|slot| std::mem::replace(slot, port))
    }

    /// Gives each worker a command, and waits until all are carried out.
    fn command(&self, crew: &Crew, commands: Vec<Command>) -> Result<(), PortsError> {
        let targets: Vec<u64> = crew.counters.iter().map(|counters| counters.commands.get() + 1).collect();
        for (worker, (door, command)) in self.doors.iter().zip(commands).enumerate() {
            door.commands.push(command).map_err(|_| PortsError::Stuck(worker))?;
        }
        crew.wake();
        let deadline = Instant::now() + LIMIT;
        for (worker, (counters, target)) in crew.counters.iter().zip(targets).enumerate() {
            while counters.commands.get() < target {
                if Instant::now() >= deadline {
                    return Err(PortsError::Stuck(worker));
                }
                std::thread::sleep(PAUSE);
            }
        }
        Ok(())
    }
}
