// placeholder so that the target has a source
