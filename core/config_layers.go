package core

import "github.com/reprise-go/reprise/core/internal/layers"

func init() { layers.Over = putOver }

// putOver puts settings over earlier ones of the same type, for package configfile.
func putOver(own, base any) any {
	switch own := own.(type) {
	case Immediate:
		return own.over(base.(Immediate))
	default:
		return own.(Delayed).over(base.(Delayed))
	}
}
