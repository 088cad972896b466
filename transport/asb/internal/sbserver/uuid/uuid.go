// Package uuid makes random UUIDs.
package uuid

import (
	"fmt"
	"math/rand/v2"
)

// New returns a random UUID, with its bytes in the order of RFC 4122.
func New() (id [16]byte) {
	for i, word := range [2]uint64{rand.Uint64(), rand.Uint64()} {
		for j := range 8 {
			id[i*8+j] = byte(word >> (8 * j))
		}
	}
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return id
}

// Format returns a UUID in the usual form.
func Format(id [16]byte) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}
