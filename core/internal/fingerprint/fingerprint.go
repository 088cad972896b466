// Package fingerprint computes a short text that failures with the same cause share, so that
// an operator sees groups of failed messages instead of thousands of single ones.
package fingerprint

import (
	"crypto/sha256"
	"encoding/hex"
)

// version is changed with every change of the rules by which texts are compared: fingerprints
// of different versions say nothing about each other.
const version = "1:"

// The limits of the inputs, in bytes. The rest of a longer one is ignored, so that the work for
// a failure is bounded.
const (
	maxText = 1 << 10
	maxName = 256
)

// Of returns the fingerprint of an error: "1:" and 12 hexadecimal digits. errorType is its type,
// text its text, and function the one that panicked, or "". The parts of the text that vary from
// one message to the next do not count: numbers, ids, times, addresses, paths and quoted values.
// Numbers after a word such as status, code, SQLSTATE or errno do: 404 and 503 are two causes.
func Of(errorType, text, function string) string {
	errorType, function, text = bounded(errorType, maxName), bounded(function, maxName), bounded(text, maxText)
	b := make([]byte, 0, len(errorType)+len(function)+len(text)+2)
	b = append(append(b, errorType...), 0)
	b = append(append(b, function...), 0)
	b = appendNormal(b, text)
	sum := sha256.Sum256(b)
	var result [len(version) + 12]byte
	hex.Encode(result[copy(result[:], version):], sum[:6])
	return string(result[:])
}

// bounded returns the beginning of a text.
func bounded(text string, limit int) string { return text[:min(len(text), limit)] }
