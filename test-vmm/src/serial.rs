//! A serial port (16450) of which the guest's kernel log comes out: it is always ready to send, and nothing arrives.

use std::io::Write;

/// First of its eight I/O ports.
pub const PORT: u16 = 0x3f8;
/// Interrupt identification: none pending.
const NO_INTERRUPT: u8 = 1;
/// Line status: both transmitter registers are empty.
const EMPTY: u8 = 0x60;
/// Modem status: carrier, data set ready, clear to send.
const CONNECTED: u8 = 0xb0;
/// Line control: the first two registers are the divisor's.
const DIVISOR: u8 = 0x80;

pub struct Serial {
    registers: [u8; 8],
    divisor: [u8; 2],
    out: Box<dyn Write + Send>,
}

impl Serial {
    pub fn new(out: Box<dyn Write + Send>) -> Serial {
        Serial {
            registers: [0; 8],
            divisor: [0; 2],
            out,
        }
    }

    pub fn read(&self, register: u16) -> u8 {
        let sets_divisor = self.registers[3] & DIVISOR != 0;
        match register & 7 {
            at @ 0..=1 if sets_divisor => self.divisor[usize::from(at)],
            0 => 0,
            2 => NO_INTERRUPT,
            5 => EMPTY,
            6 => CONNECTED,
            at => self.registers[usize::from(at)],
        }
    }

    pub fn write(&mut self, register: u16, value: u8) {
        let sets_divisor = self.registers[3] & DIVISOR != 0;
        match register & 7 {
            at @ 0..=1 if sets_divisor => self.divisor[usize::from(at)] = value,
            0 => {
                // A log that cannot be written must not stop the guest.
                let _ = self.out.write_all(&[value]).and_then(|()| self.out.flush());
            }
            at => self.registers[usize::from(at)] = value,
        }
    }
}
