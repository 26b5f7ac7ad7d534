//! The agent's protocol: framed, versioned, bounded messages.
