// Package sdktest tests the server of package sqs through the vendor's SDK. It is a module
// of its own: the root module depends on nothing.
package sdktest
