//go:build !darwin && !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "soak: it stops and kills servers by signals, for which it needs Linux or macOS")
	os.Exit(2)
}
