// Package panicstack cuts the stack of a panic to the part that concerns its reader.
package panicstack

import "bytes"

// Cut cuts a stack that was taken while a panic was recovered: it begins at the code that
// panicked, without the frames in which the runtime and a package, including the
// middleware around it, called and recovered that code. path is the import path of the
// package; its internal packages belong to it. A stack in an unknown format is returned
// whole.
func Cut(stack []byte, path string) []byte {
	lines := bytes.SplitAfter(stack, []byte("\n"))
	// A line about the goroutine, then two lines for each frame: the function, and a
	// tab with the place.
	if len(lines) < 3 || !bytes.HasPrefix(lines[0], []byte("goroutine ")) {
		return stack
	}
	type frame struct{ function, place []byte }
	var frames []frame
	for i := 1; i < len(lines); i++ {
		f := frame{function: lines[i]}
		if i+1 < len(lines) && bytes.HasPrefix(lines[i+1], []byte("\t")) {
			i++
			f.place = lines[i]
		}
		if len(f.function) > 0 {
			frames = append(frames, f)
		}
	}
	begins := func(i int, prefix string) bool { return bytes.HasPrefix(frames[i].function, []byte(prefix)) }
	isOwn := func(i int) bool { return begins(i, path+".") || begins(i, path+"/internal/") }
	first, last := 0, len(frames)
	for first < last && !begins(first, "panic(") {
		first++
	}
	for first++; first < last && begins(first, "runtime."); {
		first++
	}
	for last > first && (isOwn(last-1) || begins(last-1, "created by ") || begins(last-1, "sync.(*WaitGroup).")) {
		last--
	}
	if first >= last { // no panic, or one in the package itself
		return stack
	}
	cut := bytes.Clone(lines[0])
	inside := true // the code that panicked, which may be a method of the package
	for i := first; i < last; i++ {
		if inside = inside && isOwn(i); inside || !isOwn(i) {
			cut = append(append(cut, frames[i].function...), frames[i].place...)
		}
	}
	return cut
}

// Function returns the name of the function in which a stack begins, without its arguments,
// or "" for a stack in an unknown format.
func Function(stack []byte) string {
	line, rest, _ := bytes.Cut(stack, []byte("\n"))
	if !bytes.HasPrefix(line, []byte("goroutine ")) {
		return ""
	}
	line, _, _ = bytes.Cut(rest, []byte("\n"))
	if i := bytes.LastIndexByte(line, '('); i > 0 {
		line = line[:i]
	}
	return string(line)
}
