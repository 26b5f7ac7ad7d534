//! Findings as people and programs see them: terminal, HTML, JSON.
