// Package uuid makes random UUIDs.
package uuid

import (
	"math/rand/v2"

	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
)

// New returns a random UUID.
func New() (id amqp10.UUID) {
	for i, word := range [2]uint64{rand.Uint64(), rand.Uint64()} {
		for j := range 8 {
			id[i*8+j] = byte(word >> (8 * j))
		}
	}
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return id
}
