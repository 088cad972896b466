// Package sdktest tests the server of package sqs through the vendor's SDK. It is a separate
// module, because the root module has no dependencies.
package sdktest
