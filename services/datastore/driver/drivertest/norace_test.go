//go:build !race

package drivertest_test

const raced = false
