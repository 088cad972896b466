package dialect

import (
	"strings"
	"unicode/utf8"

	"github.com/reprise-go/reprise/transport"
)

// QuoteWith quotes a name so that no part of it can end the quotation.
func QuoteWith(name, open, end string) string {
	return open + strings.ReplaceAll(name, end, end+end) + end
}

// CheckName checks the rules for names of tables that all products share. The name is one of
// the parts of the name of a queue.
func CheckName(queue, name string, length, limit int, unit string) error {
	bad := func(limit int, format string, args ...any) error {
		return transport.BadName("queue", queue, limit, "queue %q: "+format, append([]any{queue}, args...)...)
	}
	switch {
	case name == "":
		return bad(0, "a name is empty")
	case !utf8.ValidString(name):
		return bad(0, "the name %q is not UTF-8", name)
	case strings.ContainsRune(name, 0):
		return bad(0, "the name %q contains a NUL", name)
	case length > limit:
		return bad(limit, "the name %q has %d %s, but the longest name of a table has %d", name, length, unit, limit)
	}
	return nil
}

// Storable returns a text without NUL, which text columns cannot store.
func Storable(text string) string { return strings.ReplaceAll(text, "\x00", "\uFFFD") }
