// Package bounded limits texts that the sender of a message chooses, such as ids, types and
// header values, before they are logged, shown or kept.
package bounded

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxName is the length in bytes at which [Name] cuts.
const MaxName = 256

// Name returns the name of something: an id, a type, a queue, a header's value. One of more
// than MaxName bytes is cut at a whole character, and ends with its length.
func Name(name string) string {
	if len(name) <= MaxName {
		return name
	}
	return fmt.Sprintf("%s... (%d bytes)", name[:start(name, MaxName)], len(name))
}

// Text returns a text of any kind. One of more than limit bytes, at least 2, is its beginning
// and its end, because the error of a call ends with its cause, and says how many bytes are
// missing.
func Text(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	head, tail := start(text, limit/2), start(text, len(text)-limit/2)
	return fmt.Sprintf("%s... (%d bytes left out) ...%s", text[:head], tail-head, text[tail:])
}

// start returns the start of the character that has the byte at an index.
func start(text string, i int) int {
	for n := 1; n < utf8.UTFMax && i >= n; n++ {
		if utf8.RuneStart(text[i]) {
			return i
		}
		if utf8.RuneStart(text[i-n]) {
			return i - n
		}
	}
	return i
}

// MaxKey is the length in bytes of the longest text of which [Key] returns a copy.
const MaxKey = 2 * sha256.Size

// Key returns a key for a map, which keeps none of the memory that the text is a part of:
// a copy, or the hash of a long text.
func Key(text string) string {
	if len(text) <= MaxKey {
		return strings.Clone(text)
	}
	return fmt.Sprintf("#%x", sha256.Sum256([]byte(text))) // longer than any copy
}
