package main

func Example() {
	main()
	// Output: hello, world
}
